// The API's pages of reference. Requests made from here carry the session's CSRF token, as our own pages' do.
"use strict";

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");

// Swagger UI has a dark theme of its own, behind a class.
function themeSet() {
  root.classList.toggle("dark-mode", root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
}

system.addEventListener("change", themeSet);
themeSet();

const docs = document.getElementById("docs");

function csrfToken() {
  const found = document.cookie.split("; ").find((cookie) => cookie.startsWith("csrftoken="));
  return found ? found.slice("csrftoken=".length) : "";
}

SwaggerUIBundle({
  url: docs.dataset.schema,
  domNode: docs,
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  requestInterceptor(request) {
    const token = csrfToken();
    if (token) request.headers["X-CSRFToken"] = token;
    return request;
  },
});
