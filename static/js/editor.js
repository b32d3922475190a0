/* The JSON editor of a run document: a text area with line numbers, marks, completion from the schema, and help. */
"use strict";

(() => {
  const TAB = "  ";
  let schema = null;

  class Editor {
    constructor(area) {
      this.area = area;
      this.gutter = document.querySelector(".gutter");
      this.list = document.getElementById("completions");
      this.about = document.getElementById("about");
      this.bad = new Set(area.dataset.badLines.split(",").filter(Boolean).map(Number));
      this.offers = [];
      this.chosen = 0;
      this.shown = "";
      area.addEventListener("input", (event) => this.typed(event));
      area.addEventListener("keydown", (event) => this.key(event));
      area.addEventListener("scroll", () => this.align(), { passive: true });
      area.addEventListener("blur", () => this.close());
      area.addEventListener("click", () => this.close());
      for (const name of ["keyup", "click", "focus"]) area.addEventListener(name, () => this.tell(area.selectionStart));
      area.addEventListener("mousemove", (event) => this.point(event));
      area.addEventListener("mouseleave", () => this.tell(area.selectionStart));
      this.list.addEventListener("mousedown", (event) => this.pick(event));
      new ResizeObserver(() => this.align()).observe(area);
      area.setAttribute("aria-controls", "completions");
      area.setAttribute("aria-autocomplete", "list");
      this.number();
      if (!schema) this.load();
    }

    async load() {
      const answer = await fetch(this.area.dataset.schema).catch(() => null);
      if (!answer?.ok) return; /* without it the editor only doesn't complete */
      schema = await answer.json();
      this.area.dataset.ready = "1";
    }

    /* Line numbers, those of lines with a mistake as marks. */
    number() {
      const lines = this.area.value.split("\n").length;
      const state = `${lines} ${[...this.bad].join()}`;
      if (state === this.shown) return;
      this.shown = state;
      const rows = [];
      for (let line = 1; line <= lines; line += 1) {
        const row = document.createElement(this.bad.has(line) ? "b" : "span");
        row.textContent = this.bad.has(line) ? `${line}` : `${line}\n`;
        rows.push(row);
      }
      this.gutter.replaceChildren(...rows);
      this.align();
    }

    align() {
      this.gutter.style.height = `${this.area.offsetHeight}px`;
      this.gutter.scrollTop = this.area.scrollTop;
      this.close();
    }

    mark(lines) {
      this.bad = new Set(lines);
      this.number();
    }

    jump(line) {
      const lines = this.area.value.split("\n");
      const from = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
      this.area.focus();
      this.area.setSelectionRange(from, from + (lines[line - 1] || "").length);
      this.area.scrollTop = Math.max(0, (line - 4) * this.metrics().height);
    }

    metrics() {
      const style = getComputedStyle(this.area);
      const context = document.createElement("canvas").getContext("2d");
      context.font = style.font;
      const pad = (side) => parseFloat(style.getPropertyValue(`padding-${side}`)) + parseFloat(style.getPropertyValue(`border-${side}-width`));
      return { height: parseFloat(style.lineHeight), width: context.measureText("0").width, left: pad("left"), top: pad("top") };
    }

    /* --- Completion --- */

    typed(event) {
      this.number();
      const word = event.inputType === "insertText" && /^["\w]$/.test(event.data || "");
      const back = event.inputType === "deleteContentBackward" && !this.list.hidden;
      if (word || back) this.offer();
      else this.close();
    }

    where() {
      return window.astraeus.runDocument.locate(this.area.value, this.area.selectionStart);
    }

    offer() {
      if (!schema) return;
      this.offers = window.astraeus.runDocument.completions(schema, this.where()).slice(0, 50);
      if (!this.offers.length) return this.close();
      this.chosen = 0;
      this.list.replaceChildren(...this.offers.map((each, index) => this.option(each, index)));
      this.list.hidden = false;
      this.put();
      this.choose(0);
    }

    option(offer, index) {
      const item = document.createElement("li");
      item.id = `completion-${index}`;
      item.role = "option";
      item.dataset.index = index;
      const label = document.createElement("b");
      label.textContent = offer.label;
      const about = document.createElement("span");
      about.textContent = offer.about;
      item.append(label, " ", about);
      return item;
    }

    put() {
      const { height, width, left, top } = this.metrics();
      const before = this.area.value.slice(0, this.where().from).split("\n");
      const x = this.area.offsetLeft + left + before.at(-1).length * width - this.area.scrollLeft;
      const y = this.area.offsetTop + top + before.length * height - this.area.scrollTop;
      const most = this.area.offsetLeft + this.area.offsetWidth - this.list.offsetWidth;
      this.list.style.left = `${Math.max(0, Math.min(x, most))}px`;
      this.list.style.top = `${y}px`;
    }

    choose(index) {
      this.chosen = (index + this.offers.length) % this.offers.length;
      [...this.list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === this.chosen)));
      this.list.children[this.chosen].scrollIntoView({ block: "nearest" });
      this.area.setAttribute("aria-activedescendant", `completion-${this.chosen}`);
    }

    close() {
      if (this.list.hidden) return;
      this.list.hidden = true;
      this.area.removeAttribute("aria-activedescendant");
    }

    take() {
      const offer = this.offers[this.chosen];
      const { from, end, key } = this.where();
      const rest = this.area.value.slice(end);
      const followed = key && /^\s*:/.test(rest);
      const text = followed ? JSON.stringify(offer.label) : offer.text;
      this.area.setSelectionRange(from, end);
      this.insert(text);
      const caret = from + (followed ? text.length : offer.caret);
      this.area.setSelectionRange(caret, caret);
      this.close();
      if (!followed && key) this.offer();
    }

    /* As if it were typed: it can be undone. */
    insert(text) {
      if (!document.execCommand("insertText", false, text)) {
        this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
        this.area.dispatchEvent(new Event("input", { bubbles: true }));
      }
    }

    pick(event) {
      event.preventDefault(); /* the focus stays in the text */
      const item = event.target.closest("[data-index]");
      if (!item) return;
      this.chosen = Number(item.dataset.index);
      this.take();
    }

    key(event) {
      if (event.ctrlKey && event.key === " ") {
        event.preventDefault();
        this.offer();
      } else if (!this.list.hidden && this.inList(event)) {
        event.preventDefault();
        event.stopPropagation();
      } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
        event.preventDefault();
        this.newline();
      }
    }

    inList(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return false;
      if (event.key === "ArrowDown") this.choose(this.chosen + 1);
      else if (event.key === "ArrowUp") this.choose(this.chosen - 1);
      else if (event.key === "Enter" || event.key === "Tab") this.take();
      else if (event.key === "Escape") this.close();
      else return false;
      return true;
    }

    /* A new line is indented as the one before it, and further inside a bracket. */
    newline() {
      const { value, selectionStart, selectionEnd } = this.area;
      const line = value.slice(0, selectionStart).split("\n").at(-1);
      const indent = /^[ \t]*/.exec(line)[0];
      const opens = /[[{]$/.test(line);
      const closes = /^[\]}]/.test(value.slice(selectionEnd));
      this.insert(`\n${indent}${opens ? TAB : ""}${opens && closes ? `\n${indent}` : ""}`);
      if (opens && closes) {
        const caret = this.area.selectionStart - indent.length - 1;
        this.area.setSelectionRange(caret, caret);
      }
    }

    /* --- Help, about the field at the caret or under the pointer --- */

    point(event) {
      if (event.buttons) return;
      const { height, width, left, top } = this.metrics();
      const box = this.area.getBoundingClientRect();
      const row = Math.floor((event.clientY - box.top - top + this.area.scrollTop) / height);
      const column = Math.floor((event.clientX - box.left - left + this.area.scrollLeft) / width);
      const lines = this.area.value.split("\n");
      if (row < 0 || row >= lines.length || column < 0 || column >= lines[row].length) return;
      this.tell(lines.slice(0, row).reduce((sum, each) => sum + each.length + 1, 0) + column + 1);
    }

    tell(offset) {
      const told = schema && window.astraeus.runDocument.help(schema, window.astraeus.runDocument.locate(this.area.value, offset));
      if (!told) return this.about.replaceChildren();
      const title = document.createElement("b");
      title.textContent = told.title;
      const path = document.createElement("code");
      path.textContent = told.path;
      const text = document.createElement("p");
      text.textContent = `${told.about.replaceAll("`", "")} ${told.values}`;
      this.about.replaceChildren(title, " ", path, text);
    }
  }

  let editor = null;
  function start() {
    const area = document.getElementById("document");
    if (!area || area.type === "hidden" || editor?.area === area) return;
    editor = new Editor(area);
    window.astraeus.editor = editor;
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-line]");
    if (!link || !editor) return;
    event.preventDefault();
    editor.jump(Number(link.dataset.line));
  });
  document.addEventListener("htmx:load", start);
  start();
})();
