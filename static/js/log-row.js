/* One row of a log: number, time, rank, text; and what stands below the last one. */
"use strict";

(() => {
  const { lineNodes } = window.astraeus;

  const number = (value) => value.toLocaleString("en");
  const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

  function aside(className, textContent) {
    return Object.assign(document.createElement("span"), { className, textContent });
  }

  function anchor(at, line) {
    const found = document.createElement("a");
    found.className = "n";
    found.href = `#L${at + 1}`;
    found.tabIndex = -1;
    found.dataset.n = number(at + 1);
    found.setAttribute("aria-label", line?.error ? `Line ${at + 1}, an error` : `Line ${at + 1}`);
    return found;
  }

  /* Opens and closes a fold; log-fold-keys.js leads the keyboard to it. */
  function unfolder(viewer, fold, open) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "unfold", tabIndex: -1 });
    button.dataset.fold = fold.first;
    button.setAttribute("aria-expanded", String(open));
    button.textContent = `${number(fold.count - 1)} lines like it${open ? "" : " folded"}`;
    button.addEventListener("click", () => viewer.foldKeys.toggle(fold));
    return button;
  }

  /* `line` is undefined while it is being read; `fold`: the lines for which it stands. */
  function rowElement(viewer, at, line, fold) {
    const element = document.createElement("div");
    element.className = "line";
    if (!viewer.short) element.append(anchor(at, line));
    const opened = viewer.folds.on && viewer.folds.opened.get(at);
    if (!line) {
      if (opened) element.append(unfolder(viewer, opened, true)); /* it keeps the focus while its line is read */
      return element;
    }
    if (viewer.times) element.append(aside("time", line.at ? clock(line.at) : ""));
    if (viewer.ranks) element.append(aside("rank", line.rank));
    if (line.left_out) element.append(aside("aside", `${line.left_out} `));
    element.append(lineNodes(line.text));
    if (line.folded) element.append(aside("aside", ` (${number(line.folded)} update${line.folded === 1 ? "" : "s"} folded)`));
    if (fold || opened) element.append(unfolder(viewer, fold || opened, !fold));
    element.classList.toggle("bad", line.error);
    const first = fold ? fold.first : at;
    element.classList.toggle("hit", Boolean(viewer.finder?.isHit(first, at)));
    element.classList.toggle("now", viewer.isMarked(at) || Boolean(viewer.finder?.isNow(first, at)));
    return element;
  }

  /* How a worker ended: `Ended 14:31:07, code 137: killed`; or a sentence alone. */
  function endElement(end) {
    const item = document.createElement("li");
    item.textContent = end.at ? `${end.who} ${clock(end.at)}, ${end.text}` : end.text;
    return item;
  }

  Object.assign(window.astraeus, { rowElement, endElement });
})();
