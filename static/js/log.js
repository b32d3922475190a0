/* The log viewer: draws only the lines in sight, follows only at the end, and never jumps by itself. */
"use strict";

(() => {
  const { Lines, Folds, FoldKeys, Finder, Marks, Gone, rowElement, endElement, say } = window.astraeus;
  const LINE_PX = 18;
  const AROUND = 120; /* rows drawn above and below those in sight */
  const SHORT_LINES = 20;
  const MOST_PX = 15_000_000; /* browsers draw nothing beyond some height */
  const AT_END_PX = 24;
  const EVERY_MS = 400; /* a log that is written fast is read so often */
  const RETRY_MS = 2000;
  const NARROW = "(max-width: 719px)";

  const number = (value) => value.toLocaleString("en");

  class Viewer {
    constructor(root) {
      this.root = root;
      this.box = root.querySelector(".log");
      this.short = "short" in root.dataset;
      this.ranks = "ranks" in root.dataset;
      this.lines = new Lines(root.dataset.lines, (error) => (error ? this.failed(error) : this.draw()));
      this.folds = new Folds(root.dataset.folds);
      this.foldKeys = new FoldKeys(this);
      this.follow = true;
      this.times = false;
      this.fresh = 0;
      this.marks = new Marks(!this.short);
      this.pad = document.createElement("div");
      this.pad.className = "space";
      this.pane = document.createElement("div");
      this.pane.className = "pane";
      this.pad.append(this.pane);
      this.started = false;
      this.first = new Promise((resolve) => {
        this.firstRead = resolve;
      });
      if (!this.short) this.finder = new Finder(this, root.dataset.search);
      this.controls();
      this.refresh();
    }

    /* Reading */

    async refresh() {
      if (this.reading) {
        this.again = true;
        return;
      }
      this.reading = true;
      try {
        const before = this.lines.total;
        const restarted = await this.lines.refresh();
        this.noteShow("");
        if (restarted) this.restarted();
        else if (!this.follow) this.freshAdd(this.lines.total - before);
        this.firstRead();
        this.begin();
        this.grown();
        this.draw();
      } catch (error) {
        this.failed(error);
      }
      setTimeout(() => {
        this.reading = false;
        if (this.again) {
          this.again = false;
          this.refresh();
        }
      }, EVERY_MS);
    }

    failed(error) {
      if (error instanceof Gone) {
        this.noteShow(error.message);
        return;
      }
      this.noteShow("The connection was lost. Trying again.");
      clearTimeout(this.retry);
      this.retry = setTimeout(() => this.refresh(), RETRY_MS);
    }

    restarted() {
      this.finder?.clear();
      this.folds.clear();
      this.fresh = 0;
      this.noteShow(`Attempt ${this.lines.attempt}`);
    }

    grown() {
      if (this.short) return;
      this.endsShow();
      this.finder.errorsLater();
      this.foldMore();
    }

    /* What the server wrote into the page is exchanged for the live lines once there are any. */
    begin() {
      if (this.started || !this.lines.count) return;
      this.started = true;
      this.box.replaceChildren(this.pad);
      this.box.classList.add("live");
      if (this.marks.range) this.go(this.marks.range[0]);
      else if ("firstError" in this.root.dataset) this.finder.errorGo(1);
    }

    /* Drawing */

    get rows() {
      return this.folds.rows(this.lines.count);
    }

    get height() {
      return Math.min(this.rows * LINE_PX, MOST_PX);
    }

    /* Pixels of the scroll bar for one row. */
    get scale() {
      return this.height / Math.max(1, this.rows);
    }

    draw() {
      if (!this.started) return;
      cancelAnimationFrame(this.frame);
      this.frame = requestAnimationFrame(() => (this.short ? this.drawEnd() : this.drawSight()));
    }

    drawEnd() {
      const first = Math.max(0, this.lines.count - SHORT_LINES);
      this.foldKeys.fill(this.elements(first, this.lines.count));
      this.box.scrollTop = this.box.scrollHeight;
    }

    /* So few wrapped rows that all are drawn: they are as high as they are. */
    get whole() {
      return this.rows <= 2 * AROUND && this.box.classList.contains("wrap");
    }

    drawWhole() {
      this.foldKeys.fill(this.elements(0, this.rows));
      Object.assign(this.pane.style, { top: "0", bottom: "" });
      this.pad.style.height = `${this.pane.offsetHeight}px`;
      const shown = this.pane.children[this.toShow];
      if (this.follow) this.box.scrollTop = this.box.scrollHeight;
      else if (shown) this.box.scrollTop = shown.offsetTop - this.box.clientHeight / 2;
      this.toShow = -1;
      this.followShow();
    }

    drawSight() {
      if (this.whole) {
        this.drawWhole();
        return;
      }
      this.pad.style.height = `${this.height}px`;
      if (this.follow) this.box.scrollTop = this.box.scrollHeight;
      const seen = Math.ceil(this.box.clientHeight / LINE_PX);
      const top = Math.floor(this.box.scrollTop / this.scale);
      const first = Math.max(0, Math.min(top, this.rows - seen) - AROUND);
      const end = Math.min(this.rows, top + seen + AROUND);
      this.foldKeys.fill(this.elements(first, end));
      this.place(top, first, end);
      this.followShow();
    }

    /* Puts the pane where its row `top` is in sight; at the end of the log, its end at the end. */
    place(top, first, end) {
      const wrapped = this.box.classList.contains("wrap");
      if (end === this.rows && (this.follow || this.atEnd())) {
        Object.assign(this.pane.style, { top: "", bottom: "0" });
        return;
      }
      const above = wrapped ? (this.pane.children[top - first]?.offsetTop ?? 0) : (top - first) * LINE_PX;
      const into = this.box.scrollTop - top * this.scale;
      Object.assign(this.pane.style, { bottom: "", top: `${this.box.scrollTop - above - into}px` });
    }

    elements(first, end) {
      const found = [];
      for (let row = first; row < end; row += 1) {
        const { line, fold } = this.folds.inRow(row);
        if (!fold && !this.short) this.lines.want(line, line + 1);
        found.push(rowElement(this, line, fold ? fold.line : this.lines.at(line), fold));
      }
      return found;
    }

    /* What is to be known below the last line: how it ended, what may still come. */
    endsShow() {
      this.root.querySelector("[data-ends]").replaceChildren(...this.lines.ends.map(endElement));
    }

    /* Following */

    atEnd() {
      return this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < AT_END_PX;
    }

    scrolled() {
      if (!this.started || this.short) return;
      if (this.atEnd() !== this.follow) this.followSet(this.atEnd());
      this.draw();
    }

    followSet(on) {
      this.follow = on;
      if (on) this.fresh = 0;
      this.followShow();
      if (on) this.draw();
    }

    freshAdd(count) {
      this.fresh += Math.max(0, count);
      this.followShow();
    }

    followShow() {
      const button = this.button("follow");
      if (!button) return;
      button.setAttribute("aria-pressed", String(this.follow));
      const lines = `${number(this.fresh)} new line${this.fresh === 1 ? "" : "s"}`;
      button.textContent = this.follow || !this.fresh ? "Follow" : `Follow · ${lines}`;
    }

    /* Brings a line (from 0) into the middle of what is in sight. */
    go(line) {
      this.follow = false;
      this.toShow = this.folds.row(line);
      const middle = Math.max(0, this.toShow - Math.floor(this.box.clientHeight / LINE_PX / 2));
      if (!this.whole) this.scrollTo(middle);
      this.follow = false;
      this.draw();
    }

    scrollTo(row) {
      this.pad.style.height = `${this.height}px`;
      this.box.scrollTop = row * this.scale;
    }

    /* The row at the top of what is in sight. */
    get topRow() {
      const top = this.box.scrollTop;
      const row = this.whole
        ? [...this.pane.children].findIndex((each) => each.offsetTop + each.offsetHeight > top)
        : Math.floor(top / this.scale);
      return Math.min(Math.max(0, this.rows - 1), Math.max(0, row));
    }

    get topLine() {
      return this.folds.inRow(this.topRow).line;
    }

    isMarked(at) {
      return this.marks.has(at);
    }

    pick(anchor, extend) {
      this.marks.pick(Number(anchor.hash.slice(2)) - 1, extend);
      this.followSet(false);
      this.draw();
    }

    async linkCopy() {
      const hash = this.marks.range ? location.hash : `#L${this.topLine + 1}`;
      await navigator.clipboard.writeText(`${location.href.split("#")[0]}${hash}`);
      say(`Copied the address of line ${hash.slice(2)}`);
      this.noteShow(`Copied ${hash}`);
    }

    noteShow(text) {
      const note = this.root.querySelector("[data-note]");
      if (note) note.textContent = text;
    }

    /* Controls */

    button(name) {
      return this.root.querySelector(`[data-${name}]`);
    }

    controls() {
      this.box.addEventListener("scroll", () => this.scrolled(), { passive: true });
      document.body.addEventListener("log-changed", () => this.refresh());
      document.body.addEventListener("run-changed", () => this.refresh());
      if (this.short) return;
      const actions = {
        follow: () => this.followSet(!this.follow),
        wrap: () => this.wrap(),
        times: () => this.timesSwitch(),
        folding: () => this.fold(),
        announce: () => this.announceSwitch(),
        more: () => this.more(),
        error: () => this.finder.errorGo(1),
        link: () => this.linkCopy(),
        previous: () => this.finder.hitGo(-1),
      };
      for (const [name, action] of Object.entries(actions)) {
        this.button(name).addEventListener("click", action);
      }
      if (matchMedia(NARROW).matches) this.wrap();
      this.formListen(this.button("find"));
      this.box.addEventListener("keydown", (event) => this.pressed(event));
      this.box.addEventListener("click", (event) => {
        const anchor = event.target.closest("a.n");
        if (!anchor) return;
        event.preventDefault();
        this.pick(anchor, event.shiftKey);
      });
      document.addEventListener("keydown", (event) => {
        if ((event.ctrlKey || event.metaKey) && event.key === "f") this.noteShow("The browser's own search sees only the lines on screen.");
      });
      window.addEventListener("hashchange", () => {
        this.marks.read();
        if (this.marks.range) this.go(this.marks.range[0]);
      });
    }

    formListen(form) {
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const text = form.querySelector("input").value;
        if (text === this.finder.text && this.finder.hits.length) this.finder.hitGo(1);
        else this.finder.find(text);
      });
    }

    press(name, on) {
      this.button(name).setAttribute("aria-pressed", String(on));
      this.draw();
    }

    wrap() {
      this.press("wrap", this.box.classList.toggle("wrap"));
    }

    timesSwitch() {
      this.times = !this.times;
      this.press("times", this.times);
    }

    announceSwitch() {
      this.finder.announce = !this.finder.announce;
      this.press("announce", this.finder.announce);
    }

    more() {
      const button = this.button("more");
      button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") !== "true"));
    }

    fold() {
      this.keeping(() => {
        this.folds.on = !this.folds.on;
        this.folds.clear();
      });
      this.press("folding", this.folds.on);
      this.foldMore();
    }

    foldMore() {
      this.folds.refresh(this.lines.total, (apply) => this.keeping(apply)).catch((error) => this.failed(error));
    }

    /* Folds or unfolds; the line at the top stays there. */
    keeping(change) {
      const { follow, topLine } = this;
      change();
      if (!follow && !this.whole) this.scrollTo(this.folds.row(topLine));
      this.finder.ticksDraw();
      this.draw();
    }

    pressed(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const keys = {
        "/": () => this.button("find").querySelector("input").focus(),
        n: () => this.finder.hitGo(1),
        N: () => this.finder.hitGo(-1),
        e: () => this.finder.errorGo(1),
        E: () => this.finder.errorGo(-1),
        f: () => this.followSet(!this.follow),
        w: () => this.wrap(),
        t: () => this.timesSwitch(),
        z: () => this.foldKeys.go(1),
        Z: () => this.foldKeys.go(-1),
        End: () => this.followSet(true),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      keys[event.key]();
    }
  }

  for (const root of document.querySelectorAll("[data-lines]")) new Viewer(root);
})();
