/* Lines that differ only in numbers as one row: which lines are folded, and which row a line stands in. */
"use strict";

(() => {
  const { get } = window.astraeus;

  class Folds {
    constructor(address) {
      this.address = address;
      this.on = false;
      this.clear();
    }

    clear() {
      this.known = [];
      this.opened = new Map(); /* first line → fold; all of its lines are shown */
      this.folds = []; /* the known ones that are closed */
      this.hidden = []; /* lines that the folds before each take away */
      this.gone = 0;
      this.read = 0; /* lines up to here are judged */
    }

    /* Judges the lines up to `total`, part by part; `change(apply)` has each part applied. The end of what was judged
       is judged anew, for what has come since may belong to it. */
    async refresh(total, change) {
      if (!this.on || this.reading || this.read >= total) return;
      this.reading = true;
      try {
        let more = true;
        while (this.on && more) {
          const from = this.resume();
          const got = await get(this.address, { first: from });
          more = got.more;
          if (this.on) change(() => this.add(from, got));
        }
      } finally {
        this.reading = false;
      }
    }

    resume() {
      const last = this.known.at(-1);
      const end = last ? last.first + last.count : 0;
      return last && end === this.read ? last.first : Math.max(end, this.read - 2);
    }

    add(from, got) {
      this.known = [...this.known.filter((fold) => fold.first < from), ...got.folds];
      for (const fold of got.folds) if (this.opened.has(fold.first)) this.opened.set(fold.first, fold);
      this.read = got.read;
      this.count();
    }

    count() {
      this.gone = 0;
      this.folds = this.known.filter((fold) => !this.opened.has(fold.first));
      this.hidden = this.folds.map((fold) => {
        const before = this.gone;
        this.gone += fold.count - 1;
        return before;
      });
    }

    /* Opens a closed fold, closes an opened one. */
    toggle(fold) {
      if (!this.opened.delete(fold.first)) this.opened.set(fold.first, fold);
      this.count();
    }

    /* The fold next to this line, below (`step` 1) or above (-1) it; `here`: one that begins at it is below. */
    near(line, step, here) {
      if (!this.on) return undefined;
      if (step < 0) return this.known.findLast((fold) => fold.first < line);
      return this.known.find((fold) => fold.first > line || (here && fold.first === line));
    }

    /* The last fold of which `place(number of the fold)` is at most `at`; -1 where there is none. */
    last(at, place) {
      let low = -1;
      let high = this.on ? this.folds.length - 1 : -1;
      while (low < high) {
        const middle = Math.ceil((low + high) / 2);
        if (place(middle) <= at) low = middle;
        else high = middle - 1;
      }
      return low;
    }

    rows(lines) {
      return lines - (this.on ? this.gone : 0);
    }

    /* The row in which this line stands. */
    row(line) {
      const at = this.last(line, (each) => this.folds[each].first);
      if (at < 0) return line;
      const { first, count } = this.folds[at];
      return Math.max(first, line - count + 1) - this.hidden[at];
    }

    /* What stands in this row: a fold, or the number of a line. */
    inRow(row) {
      const at = this.last(row, (each) => this.folds[each].first - this.hidden[each]);
      if (at < 0) return { line: row };
      const fold = this.folds[at];
      if (fold.first - this.hidden[at] === row) return { line: fold.line.n, fold };
      return { line: row + this.hidden[at] + fold.count - 1 };
    }
  }

  window.astraeus.Folds = Folds;
})();
