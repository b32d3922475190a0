/* What every page does: say, copy, keep buttons busy, show what went wrong. */
"use strict";

window.astraeus = window.astraeus || {};

(() => {
  const SAY_EVERY_MS = 5000;
  const COPIED_MS = 2000;
  const BAR_AFTER_MS = 400;
  const region = document.getElementById("say");
  let saidAt = 0;
  let waiting = null;

  /* Announces a sentence politely: one in five seconds at most, the last one wins. */
  function say(text) {
    if (!region || !text) return;
    const due = saidAt + SAY_EVERY_MS - Date.now();
    clearTimeout(waiting);
    const speak = () => {
      saidAt = Date.now();
      region.textContent = text;
    };
    if (due <= 0) speak();
    else waiting = setTimeout(speak, due);
  }

  /* Shows a sentence that the person must not miss; null takes it away. */
  function alertShow(text, link) {
    const box = document.getElementById("alert");
    box.replaceChildren();
    if (!text) return;
    const note = document.createElement("p");
    note.className = "notice bad";
    note.textContent = text + " ";
    if (link) {
      const anchor = document.createElement("a");
      anchor.href = link.href;
      anchor.textContent = link.text;
      note.append(anchor);
    }
    box.append(note);
  }

  Object.assign(window.astraeus, { say, alertShow });

  for (const element of document.querySelectorAll("[data-say].notice")) say(element.dataset.say);
  /* The run was started: drafts of its document (editor.js) have done their work. */
  if (document.querySelector("[data-draft-sent]")) {
    for (const key of Object.keys(sessionStorage)) {
      if (key.startsWith("astraeus.draft:")) sessionStorage.removeItem(key);
    }
  }
  document.body.addEventListener("astraeus:say", (event) => say(event.detail.value));

  /* Copy buttons exist only where they work. */
  function copiesShow(root) {
    if (!navigator.clipboard) return;
    for (const button of root.querySelectorAll("button[data-copy][hidden]")) button.hidden = false;
  }
  copiesShow(document);
  document.addEventListener("htmx:load", (event) => copiesShow(event.target));

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button || button.dataset.done) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    const before = [...button.childNodes];
    button.dataset.done = "1";
    button.replaceChildren("Copied");
    say(`Copied ${button.getAttribute("aria-label").replace(/^Copy /, "")}`);
    setTimeout(() => {
      button.replaceChildren(...before);
      delete button.dataset.done;
    }, COPIED_MS);
  });

  /* A pressed button keeps its width and says what happens; a second press does nothing. */
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    if (event.defaultPrevented || form.method === "get" || form.method === "dialog") return;
    const button = event.submitter;
    if (!form.dataset.busy || !button || button.name === "load") return;
    if (!form.hasAttribute("hx-post")) form.dataset.sent = "1";
    button.style.minWidth = `${button.offsetWidth}px`;
    button.textContent = form.dataset.busy;
  });
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) window.location.reload();
  });

  /* A bar under the header when something takes long. */
  const bar = document.getElementById("progress");
  let timer = null;
  const barOn = () => {
    clearTimeout(timer);
    timer = setTimeout(() => bar.classList.add("on"), BAR_AFTER_MS);
  };
  const barOff = () => {
    clearTimeout(timer);
    bar.classList.remove("on");
  };
  if (bar) {
    document.addEventListener("htmx:beforeRequest", barOn);
    document.addEventListener("htmx:afterRequest", barOff);
    window.addEventListener("beforeunload", barOn);
  }

  document.addEventListener("htmx:responseError", (event) => {
    const { status, responseText } = event.detail.xhr;
    if (status === 401) {
      const next = encodeURIComponent(location.pathname + location.search);
      alertShow("You were signed out. Sign in again; what you typed is kept.", {
        href: `/accounts/login/?next=${next}`,
        text: "Sign in",
      });
    } else if (event.detail.elt.getAttribute("hx-swap") !== "none") {
      const plain = (event.detail.xhr.getResponseHeader("Content-Type") || "").startsWith("text/plain");
      alertShow(plain ? responseText : "This failed on our side; nothing was changed.");
    }
  });

  /* Nothing under the hand moves: a leaf that holds the focus stays as it is until the next change. */
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const { target, fragment } = event.detail;
    const key = fragment.firstElementChild?.dataset.key;
    const same = key !== undefined && key === target.dataset.key;
    const held = target.contains(document.activeElement);
    if (held && key !== undefined && !same) changedTell(target);
    if (same || held) event.detail.shouldSwap = false;
  });
  /* What is read under the focus is not exchanged under the hand: the person asks for it. */
  function changedTell(target) {
    if (document.getElementById("changed")) return;
    const note = Object.assign(document.createElement("p"), { id: "changed", className: "notice wait" });
    const show = Object.assign(document.createElement("button"), { type: "button", className: "button small" });
    show.textContent = "Show";
    show.addEventListener("click", () => {
      note.remove();
      htmx.trigger(document.body, `${document.body.dataset.streamEvent}-changed`);
    });
    note.append("The cluster has changed. ", show);
    target.before(note);
  }
  /* The page's title, icon and what is announced follow the state that the page is about. */
  document.addEventListener("htmx:oobAfterSwap", () => {
    const leaf = document.querySelector(".answer[data-say]");
    if (!leaf || leaf.dataset.say === stateSaid) return;
    stateSaid = leaf.dataset.say;
    say(stateSaid);
    if (leaf.dataset.title) document.title = leaf.dataset.title;
    const icon = document.getElementById("favicon");
    if (leaf.dataset.icon) icon.href = icon.href.replace(/state-[a-z]+(\.[0-9a-f]+)?\.svg/, `state-${leaf.dataset.icon}.svg`);
  });
  let stateSaid = document.querySelector(".answer[data-say]")?.dataset.say;

  for (const button of document.querySelectorAll("[data-open]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      if (button.dataset.open === "help") window.astraeus.helpShow();
      else document.getElementById(button.dataset.open).showModal();
    });
  }
  /* Menus close when something else is pressed. */
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  document.querySelector("[data-focus]")?.focus();
})();
