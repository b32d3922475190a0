/* The folds of a log under the keyboard: to the next one, open and close, and the focus kept while rows are drawn anew.
   Their controls stay out of the tab order, which a long log would make endless: a key goes from one to the next. */
"use strict";

(() => {
  const { say } = window.astraeus;

  class FoldKeys {
    constructor(viewer) {
      this.viewer = viewer;
      this.wanted = null; /* the first line of the fold that takes the focus once it is drawn */
    }

    control(first) {
      return this.viewer.pane.querySelector(`[data-fold="${first}"]`);
    }

    /* The first line of the fold that has the focus; null where none has it. */
    get focused() {
      const { activeElement } = document;
      const held = this.viewer.pane.contains(activeElement) && activeElement.dataset.fold;
      return held ? Number(held) : null;
    }

    /* Draws these rows. A fold that had the focus has it again; one that is no longer drawn leaves it to the log. */
    fill(rows) {
      const { wanted, focused } = this;
      this.viewer.pane.replaceChildren(...rows);
      this.wanted = null;
      const first = wanted ?? focused;
      if (first === null) return;
      (this.control(first) ?? this.viewer.box).focus({ preventScroll: true });
      if (wanted !== null) queueMicrotask(() => this.show(wanted)); /* once the rows stand in their place */
    }

    /* A long line's control may be beside what is in sight. */
    show(first) {
      this.control(first)?.scrollIntoView({ block: "nearest", inline: "nearest" });
    }

    inSight(control) {
      const at = control.getBoundingClientRect();
      const frame = this.viewer.box.getBoundingClientRect();
      return at.top >= frame.top && at.bottom <= frame.bottom;
    }

    /* To the next fold (`step` 1) or the one before (-1): from the one with the focus, else from the top of the sight. */
    go(step) {
      const { folds } = this.viewer;
      const found = this.focused === null ? folds.near(this.top, step, true) : folds.near(this.focused, step, false);
      if (found) this.focus(found.first);
      else this.tell(folds.on ? `No fold ${step > 0 ? "below" : "above"}` : "Fold repeats is off");
    }

    get top() {
      const { line, fold } = this.viewer.folds.inRow(this.viewer.topRow);
      return fold ? fold.first : line;
    }

    focus(first) {
      const control = this.control(first);
      if (control && this.inSight(control)) {
        this.viewer.followSet(false);
        control.focus();
        return;
      }
      this.wanted = first;
      this.viewer.go(first);
    }

    tell(text) {
      say(text);
      this.viewer.noteShow(text);
    }

    /* Opens or closes. The rows above are the same afterwards, so what is in sight stays where it is; where the
       control was above it, it comes back into sight. */
    toggle(fold) {
      const { viewer } = this;
      const { whole, topRow } = viewer;
      viewer.followSet(false);
      viewer.folds.toggle(fold);
      if (whole !== viewer.whole) viewer.go(fold.first);
      else if (!whole) viewer.scrollTo(Math.min(topRow, viewer.folds.row(fold.first)));
      viewer.finder.ticksDraw();
      viewer.draw();
    }
  }

  window.astraeus.FoldKeys = FoldKeys;
})();
