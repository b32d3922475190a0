/* A log's lines by number: read in blocks when they are looked at, a bounded number of blocks kept. */
"use strict";

window.astraeus = window.astraeus || {};

(() => {
  const BLOCK = 200;
  const MOST_BLOCKS = 60;

  class Gone extends Error {}

  const GONE = {
    401: "You were signed out. Sign in again.",
    403: "You may no longer read this log.",
    404: "This log is no longer here.",
  };

  async function get(address, values) {
    const url = `${address}&${new URLSearchParams(values)}`;
    const response = await fetch(url, { credentials: "same-origin", headers: { "HX-Request": "true" } });
    if (GONE[response.status]) throw new Gone(GONE[response.status]);
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.json();
  }

  class Lines {
    /* `arrived` is called whenever something has been read. */
    constructor(address, arrived) {
      this.address = address;
      this.arrived = arrived;
      this.blocks = new Map();
      this.asked = new Set();
      this.total = 0;
      this.pending = [];
      this.ends = [];
      this.attempt = null;
      this.over = false;
    }

    /* The line of this number, or undefined while it is being read. */
    at(number) {
      if (number >= this.total) return this.pending[number - this.total];
      return this.blocks.get(Math.floor(number / BLOCK))?.[number % BLOCK];
    }

    get count() {
      return this.total + this.pending.length;
    }

    /* Reads the end: how long the log is now. True when another attempt has begun. */
    async refresh() {
      const got = await get(this.address, { first: -BLOCK, count: BLOCK });
      const restarted = this.attempt !== null && got.attempt !== this.attempt;
      if (restarted || got.total < this.total) this.blocks.clear();
      this.attempt = got.attempt;
      this.over = got.over;
      this.ends = got.ends;
      this.keep(got);
      return restarted;
    }

    /* Has the blocks read that hold these lines and are not there yet. */
    want(first, end) {
      for (let block = Math.floor(first / BLOCK); block * BLOCK < Math.min(end, this.total); block += 1) {
        const kept = this.blocks.get(block);
        const whole = Math.min(BLOCK, this.total - block * BLOCK);
        if ((!kept || this.filled(kept) < whole) && !this.asked.has(block)) this.read(block);
      }
    }

    filled(block) {
      let count = 0;
      while (count < BLOCK && block[count]) count += 1;
      return count;
    }

    async read(block) {
      this.asked.add(block);
      try {
        this.keep(await get(this.address, { first: block * BLOCK, count: BLOCK }), false);
        this.arrived();
      } catch (error) {
        this.arrived(error);
      } finally {
        this.asked.delete(block);
      }
    }

    keep(got, atEnd = true) {
      for (const line of got.lines) {
        const block = Math.floor(line.n / BLOCK);
        if (!this.blocks.has(block)) this.blocks.set(block, new Array(BLOCK));
        this.blocks.get(block)[line.n % BLOCK] = line;
      }
      if (atEnd) {
        this.total = got.total;
        this.pending = got.pending;
      }
      /* The blocks read first go first. */
      for (const old of this.blocks.keys()) {
        if (this.blocks.size <= MOST_BLOCKS) break;
        this.blocks.delete(old);
      }
    }
  }

  /* Numbers of the lines from `first` on that a search finds (without `text`: those with errors), read part by part;
     `told(numbers, searched)` after each, 0 to 1. */
  async function search(address, text, told, stopped, first = 0) {
    const numbers = [];
    let next = first;
    while (next !== null && !stopped()) {
      const got = await get(address, text ? { text, first: next } : { first: next });
      numbers.push(...got.numbers);
      next = got.next;
      if (!stopped()) told(numbers, next === null ? 1 : next / Math.max(1, got.total), got.total);
    }
    return numbers;
  }

  Object.assign(window.astraeus, { Lines, get, search, Gone });
})();
