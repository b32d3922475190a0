/* Finding in a log: text, over all of it, and the lines that report errors, which are marked beside the scroll bar. */
"use strict";

(() => {
  const { search, say } = window.astraeus;
  const EVERY_MS = 3000; /* a log that grows is looked through for errors so often */
  const MOST_TICKS = 400;
  const TICKS_HIGH = 1000;
  const SVG = "http://www.w3.org/2000/svg";

  const number = (value) => value.toLocaleString("en");
  const counted = (count, one) => `${number(count)} ${one}${count === 1 ? "" : "s"}`;

  class Finder {
    constructor(viewer, address) {
      this.viewer = viewer;
      this.address = address;
      this.place = viewer.root.querySelector("[data-found]");
      this.searching = 0;
      this.ticks = this.ticksMake();
      this.clear();
    }

    clear() {
      this.hits = [];
      this.hit = -1;
      this.errors = [];
      this.looked = 0; /* lines up to here were looked through for errors */
      this.ticksDraw();
    }

    /* Text */

    async find(text) {
      const mine = (this.searching += 1);
      this.text = text;
      this.hits = [];
      this.hit = -1;
      this.show("");
      if (!text) {
        this.viewer.draw();
        return;
      }
      const told = (numbers, part, total) => this.told(numbers, part, total);
      try {
        await search(this.address, text, told, () => this.searching !== mine);
      } catch (error) {
        this.viewer.failed(error);
      }
    }

    told(numbers, part, total) {
      this.hits = numbers;
      if (part < 1) this.show(`${number(numbers.length)} match${numbers.length === 1 ? "" : "es"} so far, ${Math.floor(part * 100)} % searched`);
      else if (!numbers.length) this.show(`Nothing matches “${this.text}” in ${number(total)} lines.`);
      if (numbers.length && this.hit < 0) this.hitGo(1);
      else this.viewer.draw();
      if (part === 1 && numbers.length) this.hitShow();
    }

    /* To the next (1) or previous (-1) match. */
    hitGo(by) {
      if (!this.hits.length) return;
      this.hit = this.hit < 0 ? (by > 0 ? 0 : this.hits.length - 1) : (this.hit + by + this.hits.length) % this.hits.length;
      this.hitShow();
      this.viewer.go(this.hits[this.hit]);
    }

    /* Whether one of these lines matches. */
    isHit(first, last) {
      return this.hits.some((at) => at >= first && at <= last);
    }

    isNow(first, last) {
      return this.hit >= 0 && this.hits[this.hit] >= first && this.hits[this.hit] <= last;
    }

    hitShow() {
      this.show(`${number(this.hit + 1)} of ${number(this.hits.length)}`);
    }

    show(text) {
      this.place.textContent = text;
    }

    /* Errors */

    /* Looks through what has come since; one look at a time. */
    errorsRead() {
      this.looking = this.looking || this.errorsLook().finally(() => {
        this.looking = null;
      });
      return this.looking;
    }

    async errorsLook() {
      const upto = this.viewer.lines.total;
      if (upto <= this.looked) return;
      const first = this.looked;
      const found = await search(this.address, "", () => {}, () => false, first);
      const fresh = found.filter((at) => at < upto);
      this.errors.push(...fresh);
      this.looked = upto;
      this.ticksDraw();
      if (first && fresh.length && this.announce) say(`${counted(fresh.length, "new error")}, line ${number(fresh[0] + 1)}`);
    }

    /* While the log grows: not at once, for each look costs the server something. */
    errorsLater() {
      if (this.later) return;
      this.later = setTimeout(() => {
        this.later = null;
        this.errorsRead().catch(() => {}); /* the next change looks again; reading the lines tells what is wrong */
      }, this.looked ? EVERY_MS : 0);
    }

    /* To the next error below the last one (1), or above (-1); round the end. */
    async errorGo(by) {
      try {
        await this.viewer.first;
        await this.errorsRead();
      } catch (error) {
        this.viewer.failed(error);
        return;
      }
      if (!this.errors.length) {
        this.viewer.noteShow("No line reports an error.");
        return;
      }
      const here = this.viewer.marks.range ? this.viewer.marks.range[0] : -1;
      const after = this.errors.filter((at) => (by > 0 ? at > here : at < here));
      const at = (by > 0 ? after[0] : after.at(-1)) ?? (by > 0 ? this.errors[0] : this.errors.at(-1));
      this.viewer.marks.set(at, at);
      this.viewer.noteShow(`Error ${number(this.errors.indexOf(at) + 1)} of ${number(this.errors.length)}, line ${number(at + 1)}`);
      this.viewer.go(at);
    }

    ticksMake() {
      const drawing = document.createElementNS(SVG, "svg");
      drawing.setAttribute("class", "error-ticks");
      drawing.setAttribute("viewBox", `0 0 1 ${TICKS_HIGH}`);
      drawing.setAttribute("preserveAspectRatio", "none");
      drawing.setAttribute("aria-hidden", "true");
      drawing.append(document.createElementNS(SVG, "path"));
      this.viewer.box.after(drawing);
      return drawing;
    }

    /* Where the errors stand in the whole log, as seen from the scroll bar. */
    ticksDraw() {
      const { rows, height, folds, box } = this.viewer;
      const share = Math.min(1, height / box.clientHeight) / Math.max(1, rows);
      const places = new Set(this.errors.map((at) => Math.floor(folds.row(at) * share * MOST_TICKS)));
      const high = TICKS_HIGH / MOST_TICKS;
      const path = [...places].map((place) => `M0 ${place * high}h1v${high}h-1z`).join("");
      this.ticks.firstChild.setAttribute("d", path);
    }
  }

  window.astraeus.Finder = Finder;
})();
