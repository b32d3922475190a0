/* Keyboard: single keys, silent in fields, and they can be switched off. */
"use strict";

(() => {
  const STORE = "astraeus.keys";
  const PREFIX_MS = 1200;
  const TYPED = "input:not([type=checkbox]), textarea, select, [contenteditable]"; /* where keys are text */
  const help = document.getElementById("help");
  const box = document.getElementById("keys-on");
  let prefixedAt = 0;

  const on = () => localStorage.getItem(STORE) !== "off";
  if (box) {
    box.checked = on();
    box.addEventListener("change", () => localStorage.setItem(STORE, box.checked ? "on" : "off"));
  }

  const follow = (id) => document.getElementById(id)?.click();

  function step(by) {
    const links = [...document.querySelectorAll("a.row-link")];
    if (!links.length) return;
    const here = document.activeElement;
    const index = links.indexOf(here.closest("tr")?.querySelector("a.row-link") || here);
    const next = index < 0 ? (by > 0 ? 0 : links.length - 1) : index + by;
    links[Math.min(Math.max(next, 0), links.length - 1)].focus();
  }

  function search() {
    const field = document.getElementById("search");
    const visible = field && field.offsetParent ? field : document.getElementById("f-text");
    visible?.focus();
    visible?.select();
  }

  /* Parts of this page that have a key of their own say so themselves; the sheet lists them. */
  const own = () => [...document.querySelectorAll("[aria-keyshortcuts][data-help]")];

  function helpShow() {
    if (!help) return;
    const list = help.querySelector(".keys");
    for (const row of list.querySelectorAll("[data-own]")) row.remove();
    for (const part of own()) {
      const key = document.createElement("dt");
      key.append(Object.assign(document.createElement("kbd"), { textContent: part.getAttribute("aria-keyshortcuts") }));
      const words = Object.assign(document.createElement("dd"), { textContent: part.dataset.help });
      for (const cell of [key, words]) cell.dataset.own = "1";
      list.append(key, words);
    }
    help.showModal();
  }

  function press(part) {
    part.focus();
    part.scrollIntoView({ block: "nearest" });
    if (part.matches("a, button")) part.click();
    else if (part.matches("summary") && !part.parentElement.open) part.parentElement.open = true;
  }

  function ownAction(key) {
    const part = own().find((each) => each.getAttribute("aria-keyshortcuts") === key);
    return part && (() => press(part));
  }

  window.astraeus.helpShow = helpShow;

  const KEYS = {
    "/": search,
    "?": helpShow,
    n: () => follow("go-new"),
    j: () => step(1),
    k: () => step(-1),
    g: () => {
      prefixedAt = Date.now();
    },
  };
  const AFTER_G = { r: () => follow("go-runs"), m: () => follow("go-machines") };

  function cancel(target) {
    const menu = document.querySelector("details.menu[open]");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
      return;
    }
    const scope = target.closest("form") || document;
    scope.querySelector("[data-cancel]")?.click();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
      cancel(event.target);
      return;
    }
    if (!on() || document.querySelector("dialog[open]")) return;
    if (event.target.closest(TYPED)) return;
    const prefixed = Date.now() - prefixedAt < PREFIX_MS;
    const action = (prefixed && AFTER_G[event.key]) || KEYS[event.key] || ownAction(event.key);
    if (!action) return;
    if (event.key !== "g") prefixedAt = 0;
    event.preventDefault();
    action();
  });
})();
