/* The log viewer: streams a worker's log, follows only at the end, keeps a bounded number of lines. */
"use strict";

(() => {
  const MOST_LINES = 5000;
  const RETRY_MS = 2000;
  const AT_END_PX = 24;

  class Viewer {
    constructor(root) {
      this.root = root;
      this.box = root.querySelector(".log");
      this.note = root.querySelector("[data-note]");
      this.followButton = root.querySelector("[data-follow]");
      this.most = Math.min(MOST_LINES, Number(root.dataset.tail));
      this.attempt = root.dataset.attempt || null;
      this.offset = null;
      this.rest = "";
      this.pending = null;
      this.started = false;
      this.follow = true;
      this.fresh = 0;
      this.queue = [];
      this.scheduled = null;
      this.controls();
      this.run();
    }

    controls() {
      const tools = this.root.querySelector(".tools");
      if (tools) tools.hidden = false;
      this.box.addEventListener("scroll", () => this.scrolled(), { passive: true });
      this.followButton?.addEventListener("click", () => this.followSet(!this.follow));
      this.root.querySelector("[data-wrap]")?.addEventListener("click", (event) => {
        const wrap = this.box.classList.toggle("wrap");
        event.currentTarget.setAttribute("aria-pressed", String(wrap));
        if (this.follow) this.toEnd();
      });
    }

    scrolled() {
      const atEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < AT_END_PX;
      if (atEnd !== this.follow) this.followSet(atEnd);
    }

    followSet(on) {
      this.follow = on;
      if (on) {
        this.fresh = 0;
        this.toEnd();
      }
      this.followShow();
    }

    followShow() {
      if (!this.followButton) return;
      this.followButton.setAttribute("aria-pressed", String(this.follow));
      const lines = `${this.fresh.toLocaleString("en")} new line${this.fresh === 1 ? "" : "s"}`;
      this.followButton.textContent = this.follow || !this.fresh ? "Follow" : `Follow · ${lines}`;
    }

    toEnd() {
      this.box.scrollTop = this.box.scrollHeight;
    }

    address() {
      const query = new URLSearchParams({ follow: "true" });
      if (this.offset === null) query.set("tail", String(this.most));
      else query.set("offset", String(this.offset));
      if (this.attempt) query.set("attempt", this.attempt);
      return `${this.root.dataset.log}?${query}`;
    }

    /* Reads until the log is complete. A lost connection goes on where it was. */
    async run() {
      for (;;) {
        try {
          await this.stream();
          break;
        } catch (error) {
          if (error instanceof Gone) {
            this.noteShow(error.message);
            return;
          }
          this.noteShow("The connection was lost. Trying again.");
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        }
      }
      this.flush();
      if (!this.root.dataset.attempt) this.nextAttempt();
    }

    async stream() {
      const response = await fetch(this.address(), { credentials: "same-origin", cache: "no-store" });
      if (response.status === 401 || response.status === 403) throw new Gone("You were signed out. Sign in again.");
      if (response.status === 404) throw new Gone("This log is no longer here.");
      if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
      this.noteShow("");
      if (this.offset === null) this.offset = Number(response.headers.get("X-Log-Offset") || 0);
      this.attempt = response.headers.get("X-Log-Attempt") || this.attempt;
      const decoder = new TextDecoder();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        this.offset += value.byteLength;
        this.take(decoder.decode(value, { stream: true }));
      }
    }

    take(text) {
      const lines = (this.rest + text).split("\n");
      this.rest = lines.pop();
      for (const line of lines) this.queue.push(line);
      if (this.queue.length > this.most) this.queue = this.queue.slice(-this.most);
      this.scheduled = this.scheduled || requestAnimationFrame(() => this.flush());
      /* A hidden tab draws no frames: its queue is bounded, and drawn when it is shown again. */
    }

    flush() {
      cancelAnimationFrame(this.scheduled);
      this.scheduled = null;
      if (!this.started && (this.queue.length || this.rest)) {
        this.started = true;
        this.box.replaceChildren();
      }
      const added = this.queue.length;
      const nodes = document.createDocumentFragment();
      for (const line of this.queue) nodes.append(window.astraeus.lineElement(line));
      this.queue = [];
      this.pending?.remove();
      this.pending = this.rest ? window.astraeus.lineElement(this.rest) : null;
      if (this.pending) nodes.append(this.pending);
      this.box.append(nodes);
      this.trim();
      if (this.follow) this.toEnd();
      else if (added) {
        this.fresh += added;
        this.followShow();
      }
    }

    trim() {
      let extra = this.box.childElementCount - this.most;
      if (extra <= 0) return;
      const before = this.box.scrollHeight;
      for (; extra > 0; extra -= 1) this.box.firstElementChild.remove();
      if (!this.follow) this.box.scrollTop -= before - this.box.scrollHeight;
    }

    /* A run that is restarted goes on in a log of its own. */
    nextAttempt() {
      const seen = this.attempt;
      const look = async () => {
        const head = await fetch(`${this.root.dataset.log}?tail=0`, { credentials: "same-origin", cache: "no-store" });
        const attempt = head.headers.get("X-Log-Attempt");
        if (!head.ok || !attempt || attempt === seen) return;
        document.body.removeEventListener("run-changed", look);
        const gap = document.createElement("p");
        gap.className = "muted gap";
        gap.textContent = `Attempt ${attempt}`;
        this.box.append(gap);
        Object.assign(this, { offset: 0, attempt: null, rest: "", pending: null, started: true });
        this.run();
      };
      document.body.addEventListener("run-changed", look);
    }

    noteShow(text) {
      if (this.note) this.note.textContent = text;
    }
  }

  class Gone extends Error {}

  for (const root of document.querySelectorAll("[data-log]")) new Viewer(root);
})();
