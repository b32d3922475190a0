/* The lines that a log's address names: `#L812`, `#L812-L820`. */
"use strict";

(() => {
  class Marks {
    /* Without `on` the page's address is another's matter. */
    constructor(on) {
      this.on = on;
      this.read();
    }

    read() {
      const found = this.on && /^#L(\d+)(?:-L?(\d+))?$/.exec(location.hash);
      const first = found ? Math.max(0, Number(found[1]) - 1) : 0;
      this.range = found ? [first, Math.max(first, Number(found[2] || found[1]) - 1)] : null;
    }

    has(at) {
      return Boolean(this.range) && at >= this.range[0] && at <= this.range[1];
    }

    set(first, last) {
      this.range = [first, last];
      history.replaceState(null, "", first === last ? `#L${first + 1}` : `#L${first + 1}-L${last + 1}`);
    }

    /* Marks this line; with `extend` all from the one that was marked to it. */
    pick(at, extend) {
      const from = extend && this.range ? this.range[0] : at;
      this.set(Math.min(from, at), Math.max(from, at));
    }
  }

  window.astraeus.Marks = Marks;
})();
