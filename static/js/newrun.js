/* New run: a preview while one types, errors at their fields, files by choice or drop, and a draft that survives. */
"use strict";

(() => {
  const KEEP_AFTER_MS = 250;
  const draftKey = `astraeus.draft:${location.pathname}`;
  const touched = new Set();
  let version = 0; /* rises with every change */
  let asked = 0; /* the version that the preview on its way is of */
  let kindSaid = "";
  let keeping = null;

  const form = () => document.getElementById("new-run");
  const preview = () => document.getElementById("preview");
  const started = () => form().querySelector("button[name=start]");

  /* --- The preview: never of anything but what stands in the form now --- */

  function awaited() {
    preview().setAttribute("aria-busy", "true");
  }

  function changed() {
    version += 1;
    preview().classList.add("stale");
    awaited();
    window.htmx.trigger(preview(), "astraeus:changed");
    clearTimeout(keeping);
    keeping = setTimeout(keep, KEEP_AFTER_MS);
  }

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.id === "preview") asked = version;
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id === "preview" && asked !== version) event.detail.shouldSwap = false;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id === "preview") show();
  });
  for (const failure of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
    document.addEventListener(failure, (event) => {
      if (event.target.id !== "preview") return;
      const note = document.createElement("p");
      note.className = "headline muted";
      note.textContent = `No preview right now. ${started().textContent.trim()} works all the same.`;
      preview().replaceChildren(note);
      settled();
    });
  }

  function settled() {
    preview().classList.remove("stale");
    preview().removeAttribute("aria-busy");
  }

  function show() {
    settled();
    const headline = preview().querySelector(".headline[data-found]");
    if (!headline) return;
    const found = JSON.parse(headline.dataset.found || "[]");
    if (form().dataset.mode === "json") window.astraeus.editor.mark(found.map(([line]) => line));
    else showProblems(found);
    if (headline.dataset.kind !== kindSaid && kindSaid) window.astraeus.say(headline.textContent.trim());
    kindSaid = headline.dataset.kind;
  }

  /* Errors show at the fields that one has left; those that are mended go. */
  function showProblems(found) {
    for (const note of document.querySelectorAll("[data-problem]")) {
      const name = note.dataset.problem;
      const message = found[name] || "";
      const told = message && (touched.has(name) || !note.hidden) ? message : "";
      note.textContent = told;
      note.hidden = !told;
      for (const input of document.querySelectorAll(`#field-${name} :is(input:not([type=hidden]), select, textarea)`)) {
        if (told) input.setAttribute("aria-invalid", "true");
        else input.removeAttribute("aria-invalid");
      }
    }
  }

  document.addEventListener("input", (event) => {
    if (!event.target.closest("#new-run") || event.target.type === "file") return;
    const mode = event.target.dataset.chooses;
    if (mode) choose(event.target, mode);
    growRows(event.target);
    changed();
  });
  document.addEventListener("focusout", (event) => {
    const field = event.target.closest?.("#new-run [data-field], #new-run [data-rows]");
    if (!field || field.contains(event.relatedTarget)) return;
    const name = field.dataset.field || field.dataset.rows;
    if (!event.target.value || touched.has(name)) return;
    touched.add(name);
    touched.add(field.closest("[data-rows]")?.dataset.rows);
    const headline = preview().querySelector(".headline[data-found]");
    if (asked === version && headline) showProblems(JSON.parse(headline.dataset.found || "[]"));
  });

  /* A number typed beside a choice makes the choice. */
  function choose(input, mode) {
    const radio = input.closest("fieldset").querySelector(`input[type=radio][value=${mode}]`);
    if (input.value) radio.checked = true;
  }

  /* Typing into the last row of a list makes room for another. */
  function growRows(input) {
    const row = input.closest(".row");
    if (!row || row.nextElementSibling || !input.value) return;
    const next = row.cloneNode(true);
    const number = row.parentElement.children.length;
    for (const each of next.querySelectorAll("[name], [for], [id]")) {
      for (const attribute of ["name", "id", "for", "aria-describedby", "data-field", "data-problem"]) {
        const value = each.getAttribute(attribute);
        if (value) each.setAttribute(attribute, value.replace(/-\d+-/, `-${number}-`));
      }
      if ("value" in each) each.value = "";
      each.removeAttribute("aria-invalid");
      if (each.dataset.problem) Object.assign(each, { hidden: true, textContent: "" });
    }
    row.after(next);
  }

  /* --- Keys --- */

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.target.closest("#new-run")) return;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      form().requestSubmit(started());
    } else if (event.target.matches("input:not([type=submit], [type=file])")) {
      event.preventDefault(); /* a run starts on purpose only */
      touched.add(event.target.closest("[data-field]")?.dataset.field);
      window.htmx.trigger(preview(), "astraeus:changed");
    }
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-to]");
    if (!link) return;
    event.preventDefault();
    reveal(link.dataset.to);
  });

  function reveal(name) {
    const field = document.getElementById(`field-${name}`);
    const fold = field.closest("details");
    if (fold) fold.open = true;
    field.querySelector("input:not([type=hidden]), select, textarea")?.focus();
  }

  /* --- Files: chosen or dropped anywhere on the page --- */

  document.addEventListener("change", (event) => {
    if (!event.target.files?.length) return;
    document.getElementById(event.target.id === "file" ? "load" : "attach").click();
  });
  document.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    form().classList.add("drop");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) form().classList.remove("drop");
  });
  document.addEventListener("drop", async (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    form().classList.remove("drop");
    const { files } = event.dataTransfer;
    const document_ = files.length === 1 && (await isRun(files[0]));
    const input = document.getElementById(document_ ? "file" : "files");
    input.files = files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });

  async function isRun(file) {
    if (!file.name.endsWith(".json")) return false;
    const { metadata, spec } = await file.text().then(JSON.parse).catch(() => ({})) ?? {};
    return Boolean(metadata || spec);
  }

  /* --- Another view of the document came --- */

  let open = [];
  let pressed = "";
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id !== "new-run") return;
    open = [...document.querySelectorAll("details.fold[open]")].map((fold) => fold.id);
    pressed = event.detail.requestConfig.triggeringEvent?.submitter?.name || event.detail.requestConfig.elt.name;
  });
  document.addEventListener("htmx:load", (event) => {
    if (event.target.id !== "new-run") return;
    version += 1;
    awaited(); /* htmx asks for it on its own */
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    arrive();
    keep();
  });

  function arrive() {
    const errors = document.getElementById("errors");
    document.title = document.title.replace(/^Error: /, "");
    if (errors) {
      document.title = `Error: ${document.title}`;
      errors.focus();
    } else if (form().dataset.line) window.astraeus.editor.jump(Number(form().dataset.line));
    else if (pressed === "show" || pressed === "back") form().querySelector(".modes [aria-pressed=true]").focus();
    else landed();
    pressed = "";
  }

  function landed() {
    const marked = document.querySelector(".marked");
    if (marked) reveal(marked.dataset.field);
    const said = { use: "The change is made.", attach: "The files are attached.", load: "The file is open." };
    window.astraeus.say(said[pressed]);
    if (pressed === "attach") document.getElementById("field-files")?.setAttribute("open", "");
  }

  /* --- Drafts: kept in this tab only, until the run is started --- */

  function keep() {
    clearTimeout(keeping);
    keeping = null;
    const left = new Set(["csrfmiddlewaretoken", "file", "files"]);
    const entries = [...new FormData(form())].filter(([name]) => !left.has(name));
    try {
      sessionStorage.setItem(draftKey, JSON.stringify(entries));
    } catch {
      /* Storage is full: what was typed is still in the form. */
    }
  }
  window.addEventListener("pagehide", () => {
    if (keeping !== null) keep();
  });

  async function restore() {
    const kept = sessionStorage.getItem(draftKey);
    if (!kept || form().dataset.filled !== undefined || document.getElementById("errors")) return;
    const body = new FormData();
    for (const [name, value] of JSON.parse(kept)) body.append(name, value);
    body.append("load", "1");
    body.append("csrfmiddlewaretoken", form().elements.csrfmiddlewaretoken.value);
    const answer = await fetch(form().action, { method: "POST", body, headers: { "HX-Request": "true" } });
    if (!answer.ok) return;
    window.htmx.swap("#new-run", await answer.text(), { swapStyle: "outerHTML" });
    document.getElementById("restored").hidden = false;
  }
  document.getElementById("discard").addEventListener("click", () => {
    clearTimeout(keeping);
    keeping = null;
    sessionStorage.removeItem(draftKey);
    location.reload();
  });
  awaited();
  restore();
})();
