/* The run document's editor: line numbers, jumps to errors, files, and a draft that survives a sign-in. */
"use strict";

(() => {
  const area = document.getElementById("document");
  const gutter = document.querySelector(".gutter");
  const form = document.getElementById("new-run");
  const draftKey = `astraeus.draft:${location.pathname}`;
  const bad = new Set(area.dataset.badLines.split(",").filter(Boolean).map(Number));
  let shown = 0;

  function number() {
    const lines = area.value.split("\n").length;
    if (lines === shown) return;
    shown = lines;
    const rows = [];
    for (let line = 1; line <= lines; line += 1) {
      const row = document.createElement(bad.has(line) ? "b" : "span");
      row.textContent = bad.has(line) ? `${line}` : `${line}\n`;
      rows.push(row);
    }
    gutter.replaceChildren(...rows);
    align();
  }

  function align() {
    gutter.style.height = `${area.offsetHeight}px`;
    gutter.scrollTop = area.scrollTop;
  }

  function jump(line) {
    const lines = area.value.split("\n");
    const from = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    area.focus();
    area.setSelectionRange(from, from + (lines[line - 1] || "").length);
    const height = parseFloat(getComputedStyle(area).lineHeight);
    area.scrollTop = Math.max(0, (line - 4) * height);
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-line]");
    if (!link) return;
    event.preventDefault();
    jump(Number(link.dataset.line));
  });

  /* Drafts: kept in this tab only, until the run is started. */
  const restored = document.getElementById("restored");
  const draft = sessionStorage.getItem(draftKey);
  if (draft && !area.value.trim()) {
    area.value = draft;
    restored.hidden = false;
  }
  document.getElementById("discard").addEventListener("click", () => {
    area.value = "";
    sessionStorage.removeItem(draftKey);
    restored.hidden = true;
    number();
    area.focus();
  });
  function keep() {
    try {
      sessionStorage.setItem(draftKey, area.value);
    } catch {
      /* Storage is full: the text is still in the field. */
    }
  }

  area.addEventListener("input", () => {
    keep();
    number();
  });
  area.addEventListener("scroll", align, { passive: true });
  new ResizeObserver(align).observe(area);

  /* A chosen file goes into the editor at once. */
  const file = document.getElementById("file");
  document.getElementById("load").hidden = true;
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    area.value = await file.files[0].text();
    file.value = "";
    keep();
    number();
    area.focus();
    window.astraeus.say("The file is in the editor.");
  });

  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    form.requestSubmit(form.querySelector("button[name=start]"));
  });
  number();
})();
