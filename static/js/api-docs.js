// The API's pages of reference. Requests made from here carry the session's CSRF token, as our own pages' do.
"use strict";

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
