/* Rows that are ticked: how many, all that are shown, a range with Shift, and the bar that acts on them. */
"use strict";

(() => {
  const { say } = window.astraeus;
  const form = document.querySelector("form[data-picks]");
  if (!form) return;

  const boxes = [...document.querySelectorAll("input[data-pick]")];
  const all = document.querySelector("input[data-pick-all]");
  const part = (name) => form.querySelector(`[data-${name}]`);
  const pager = document.querySelector(".list-foot .pager");
  const elsewhere = ". Another page starts with none.";
  let last = null;

  const runs = (count) => `${count} run${count === 1 ? "" : "s"}`;
  const may = (box) => Boolean(box.closest("tr").querySelector("[data-stops]"));

  function show() {
    const able = boxes.filter((box) => !box.disabled);
    const picked = able.filter((box) => box.checked);
    all.checked = picked.length > 0 && picked.length === able.length;
    all.indeterminate = picked.length > 0 && !all.checked;
    all.disabled = able.length === 0;
    for (const box of boxes) box.closest("tr").classList.toggle("picked", box.checked);
    form.classList.toggle("on", picked.length > 0);
    part("picked").textContent = picked.length ? `${picked.length} selected${pager ? elsewhere : ""}` : "";
    part("stop").textContent = `Stop ${runs(picked.length)}…`;
    for (const name of ["stop", "clear"]) {
      part(name).hidden = picked.length === 0;
      part(name).disabled = picked.length === 0;
    }
    return picked.length;
  }

  function tell() {
    say(`${runs(show())} selected`);
  }

  function range(from, to) {
    const [first, end] = [boxes.indexOf(from), boxes.indexOf(to)].sort((one, other) => one - other);
    for (const box of boxes.slice(first, end + 1)) if (!box.disabled) box.checked = to.checked;
  }

  for (const box of boxes) {
    box.addEventListener("click", (event) => {
      if (event.shiftKey && last) range(last, box);
      last = box;
      tell();
    });
  }
  all.addEventListener("click", () => {
    for (const box of boxes) if (!box.disabled) box.checked = all.checked;
    tell();
  });
  part("clear").addEventListener("click", () => {
    const here = form.contains(document.activeElement);
    for (const box of boxes) box.checked = false;
    tell();
    if (here) (last || all).focus();
  });

  /* A run that has ended can't be ticked any more. One that was ticked stays so: the question says what became of it. */
  document.addEventListener("htmx:oobAfterSwap", () => {
    for (const box of boxes) box.disabled = !may(box) && !box.checked && box !== document.activeElement;
    show();
  });

  all.closest("label").hidden = false;
  show();
})();
