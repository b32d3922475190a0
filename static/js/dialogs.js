/* Questions that are pages of their own are asked in a dialog of the page that leads to them. */
"use strict";

(() => {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "question");
  document.body.append(dialog);

  /* The question's form, or null where the answer has none. */
  async function question(address) {
    const answer = await fetch(address);
    const text = await answer.text();
    const form = new DOMParser().parseFromString(text, "text/html").querySelector("form.question");
    if (!answer.ok || !form) return null;
    form.action = address;
    const title = document.createElement("h2");
    title.id = "question";
    title.append(...form.querySelector("h1").childNodes);
    form.querySelector("h1").replaceWith(title);
    return document.importNode(form, true);
  }

  async function ask(address) {
    const form = await question(address).catch(() => null);
    if (!form) {
      location.assign(address);
      return;
    }
    dialog.replaceChildren(form);
    htmx.process(form);
    dialog.showModal();
    form.querySelector("[data-focus]")?.focus();
  }

  document.addEventListener("click", async (event) => {
    if (event.target.closest("dialog [data-cancel]") && dialog.open) {
      event.preventDefault();
      dialog.close();
      return;
    }
    const link = event.target.closest("a[data-dialog]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    await ask(link.href);
    link.closest("details.menu")?.removeAttribute("open");
  });

  /* A form that leads to a question: what was chosen in it goes along in the address. */
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("form[data-dialog]")) return;
    event.preventDefault();
    ask(`${form.action}?${new URLSearchParams(new FormData(form))}`);
  });
})();
