/* The log viewer: draws only the lines in sight, follows only at the end, and never jumps by itself. */
"use strict";

(() => {
  const { Lines, search, Gone, lineNodes, say } = window.astraeus;
  const LINE_PX = 18;
  const AROUND = 120; /* lines drawn above and below those in sight */
  const SHORT_LINES = 20;
  const MOST_PX = 15_000_000; /* browsers draw nothing beyond some height */
  const AT_END_PX = 24;
  const EVERY_MS = 400; /* a log that is written fast is read so often */
  const RETRY_MS = 2000;

  const number = (value) => value.toLocaleString("en");

  class Viewer {
    constructor(root) {
      this.root = root;
      this.box = root.querySelector(".log");
      this.short = "short" in root.dataset;
      this.ranks = "ranks" in root.dataset;
      this.none = this.box.querySelector(".none");
      this.lines = new Lines(root.dataset.lines, (error) => (error ? this.failed(error) : this.draw()));
      this.follow = true;
      this.fresh = 0;
      this.hits = [];
      this.hit = -1;
      this.errors = null;
      this.marked = this.addressed();
      this.searching = 0;
      this.pad = document.createElement("div");
      this.pad.className = "space";
      this.pane = document.createElement("div");
      this.pane.className = "pane";
      this.pad.append(this.pane);
      this.started = false;
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
        this.begin();
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
      this.hits = [];
      this.errors = null;
      this.fresh = 0;
      this.noteShow(`Attempt ${this.lines.attempt}`);
    }

    /* What the server wrote into the page is exchanged for the live lines once there are any. */
    begin() {
      if (this.started || !this.lines.count) return;
      this.started = true;
      this.box.replaceChildren(this.pad);
      this.box.classList.add("live");
      if (this.marked) this.go(this.marked[0]);
      else if ("firstError" in this.root.dataset) this.errorGo(1);
    }

    /* Drawing */

    get height() {
      return Math.min(this.lines.count * LINE_PX, MOST_PX);
    }

    /* Pixels of the scroll bar for one line. */
    get scale() {
      return this.height / Math.max(1, this.lines.count);
    }

    draw() {
      if (!this.started) return;
      cancelAnimationFrame(this.frame);
      this.frame = requestAnimationFrame(() => (this.short ? this.drawEnd() : this.drawSight()));
    }

    drawEnd() {
      const first = Math.max(0, this.lines.count - SHORT_LINES);
      this.pane.replaceChildren(...this.elements(first, this.lines.count));
      this.box.scrollTop = this.box.scrollHeight;
    }

    drawSight() {
      this.pad.style.height = `${this.height}px`;
      if (this.follow) this.box.scrollTop = this.box.scrollHeight;
      const seen = Math.ceil(this.box.clientHeight / LINE_PX);
      const top = Math.floor(this.box.scrollTop / this.scale);
      const first = Math.max(0, Math.min(top, this.lines.count - seen) - AROUND);
      const end = Math.min(this.lines.count, top + seen + AROUND);
      this.lines.want(first, end);
      this.pane.replaceChildren(...this.elements(first, end));
      this.place(top, first, end);
      this.followShow();
    }

    /* Puts the pane where its line `top` is in sight; at the end of the log, its end at the end. */
    place(top, first, end) {
      const wrapped = this.box.classList.contains("wrap");
      if (end === this.lines.count && (this.follow || this.atEnd())) {
        Object.assign(this.pane.style, { top: "", bottom: "0" });
        return;
      }
      const above = wrapped ? (this.pane.children[top - first]?.offsetTop ?? 0) : (top - first) * LINE_PX;
      const into = this.box.scrollTop - top * this.scale;
      Object.assign(this.pane.style, { bottom: "", top: `${this.box.scrollTop - above - into}px` });
    }

    elements(first, end) {
      const found = [];
      for (let at = first; at < end; at += 1) found.push(this.element(at, this.lines.at(at)));
      return found;
    }

    element(at, line) {
      const element = document.createElement("div");
      element.className = "line";
      if (!this.short) element.append(this.anchor(at, line));
      if (!line) return element;
      if (this.ranks) element.append(Object.assign(document.createElement("span"), { className: "rank", textContent: line.rank }));
      if (line.left_out) element.append(this.aside(`${number(line.left_out)} bytes left out here: the log passed its limit. `));
      element.append(lineNodes(line.text));
      if (line.folded) element.append(this.aside(` (${number(line.folded)} update${line.folded === 1 ? "" : "s"} folded)`));
      element.classList.toggle("bad", line.error);
      element.classList.toggle("hit", this.hits.includes(at));
      element.classList.toggle("now", this.hits[this.hit] === at || this.isMarked(at));
      return element;
    }

    anchor(at, line) {
      const anchor = document.createElement("a");
      anchor.className = "n";
      anchor.href = `#L${at + 1}`;
      anchor.tabIndex = -1;
      anchor.dataset.n = number(at + 1);
      anchor.setAttribute("aria-label", line?.error ? `Line ${at + 1}, an error` : `Line ${at + 1}`);
      return anchor;
    }

    aside(text) {
      return Object.assign(document.createElement("span"), { className: "aside", textContent: text });
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
    go(at) {
      this.follow = false;
      const middle = Math.max(0, at - Math.floor(this.box.clientHeight / LINE_PX / 2));
      this.pad.style.height = `${this.height}px`;
      this.box.scrollTop = middle * this.scale;
      this.follow = false;
      this.draw();
    }

    /* Addresses of lines */

    addressed() {
      const found = /^#L(\d+)(?:-L?(\d+))?$/.exec(location.hash);
      if (!found || this.short) return null;
      const first = Math.max(0, Number(found[1]) - 1);
      return [first, Math.max(first, Number(found[2] || found[1]) - 1)];
    }

    isMarked(at) {
      return Boolean(this.marked) && at >= this.marked[0] && at <= this.marked[1];
    }

    pick(anchor, extend) {
      const at = Number(anchor.hash.slice(2)) - 1;
      const from = extend && this.marked ? this.marked[0] : at;
      this.marked = [Math.min(from, at), Math.max(from, at)];
      const [first, last] = this.marked;
      history.replaceState(null, "", first === last ? `#L${first + 1}` : `#L${first + 1}-L${last + 1}`);
      this.followSet(false);
      this.draw();
    }

    async linkCopy() {
      const seen = Math.min(this.lines.count, Math.floor(this.box.scrollTop / this.scale) + 1);
      const hash = this.marked ? location.hash : `#L${seen}`;
      await navigator.clipboard.writeText(`${location.href.split("#")[0]}${hash}`);
      say(`Copied the address of line ${hash.slice(2)}`);
      this.noteShow(`Copied ${hash}`);
    }

    /* Searching */

    async find(text) {
      const mine = (this.searching += 1);
      this.text = text;
      this.hits = [];
      this.hit = -1;
      if (!text) {
        this.foundShow("");
        this.draw();
        return;
      }
      const told = (numbers, part, total) => {
        this.hits = numbers;
        const matches = `${number(numbers.length)} match${numbers.length === 1 ? "" : "es"}`;
        if (part < 1) this.foundShow(`${matches} so far, ${Math.floor(part * 100)} % searched`);
        else if (!numbers.length) this.foundShow(`Nothing matches “${text}” in ${number(total)} lines.`);
        if (numbers.length && this.hit < 0) this.hitGo(1);
        else this.draw();
        if (part === 1 && numbers.length) this.hitShow();
      };
      try {
        await search(this.root.dataset.search, text, told, () => this.searching !== mine);
      } catch (error) {
        this.failed(error);
      }
    }

    /* To the next (1) or previous (-1) match. */
    hitGo(by) {
      if (!this.hits.length) return;
      this.hit = this.hit < 0 ? (by > 0 ? 0 : this.hits.length - 1) : (this.hit + by + this.hits.length) % this.hits.length;
      this.hitShow();
      this.go(this.hits[this.hit]);
    }

    hitShow() {
      this.foundShow(`${number(this.hit + 1)} of ${number(this.hits.length)}`);
    }

    foundShow(text) {
      const place = this.root.querySelector("[data-found]");
      if (place) place.textContent = text;
    }

    /* To the next error below what is in sight (1), or above (-1); round the end. */
    async errorGo(by) {
      const read = this.lines.total;
      if (this.errors === null || this.errorsOf !== read) {
        try {
          this.errors = await search(this.root.dataset.search, "", () => {}, () => false);
          this.errorsOf = read;
        } catch (error) {
          this.failed(error);
          return;
        }
      }
      if (!this.errors.length) {
        this.noteShow("No line reports an error.");
        return;
      }
      const here = this.marked ? this.marked[0] : -1;
      const after = this.errors.filter((at) => (by > 0 ? at > here : at < here));
      const at = (by > 0 ? after[0] : after.at(-1)) ?? (by > 0 ? this.errors[0] : this.errors.at(-1));
      this.marked = [at, at];
      history.replaceState(null, "", `#L${at + 1}`);
      this.noteShow(`Error ${number(this.errors.indexOf(at) + 1)} of ${number(this.errors.length)}, line ${number(at + 1)}`);
      this.go(at);
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
        error: () => this.errorGo(1),
        link: () => this.linkCopy(),
        previous: () => this.hitGo(-1),
      };
      for (const [name, action] of Object.entries(actions)) {
        this.button(name).hidden = false;
        this.button(name).addEventListener("click", action);
      }
      const form = this.button("find");
      form.hidden = false;
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const text = form.querySelector("input").value;
        if (text === this.text && this.hits.length) this.hitGo(1);
        else this.find(text);
      });
      this.box.addEventListener("keydown", (event) => this.pressed(event));
      this.box.addEventListener("click", (event) => {
        const anchor = event.target.closest("a.n");
        if (!anchor) return;
        event.preventDefault();
        this.pick(anchor, event.shiftKey);
      });
      window.addEventListener("hashchange", () => {
        this.marked = this.addressed();
        if (this.marked) this.go(this.marked[0]);
      });
    }

    wrap() {
      const wrapped = this.box.classList.toggle("wrap");
      this.button("wrap").setAttribute("aria-pressed", String(wrapped));
      this.draw();
    }

    pressed(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const keys = {
        "/": () => this.button("find").querySelector("input").focus(),
        n: () => this.hitGo(1),
        N: () => this.hitGo(-1),
        e: () => this.errorGo(1),
        E: () => this.errorGo(-1),
        f: () => this.followSet(!this.follow),
        w: () => this.wrap(),
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
