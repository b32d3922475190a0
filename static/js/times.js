/* Times grow older while the page is open; the exact one shows on hover and when tapped. */
"use strict";

(() => {
  const EVERY_MS = 10_000;
  const UNITS = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];

  function words(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    const index = UNITS.findIndex(([size]) => whole >= size);
    const [size, unit] = UNITS[index < 0 ? UNITS.length - 1 : index];
    const count = Math.floor(whole / size);
    const minutes = unit === "h" ? Math.floor((whole % 3600) / 60) : 0;
    return minutes ? `${count} h ${minutes} min` : `${count} ${unit}`;
  }

  function update(root) {
    for (const time of root.querySelectorAll("time")) {
      const at = new Date(time.dateTime);
      time.title = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
      if (time.dataset.exact) continue;
      if ("clock" in time.dataset) time.textContent = at.toLocaleTimeString("en-GB");
      else if ("age" in time.dataset) time.textContent = words((Date.now() - at) / 1000);
      else if ("ago" in time.dataset) time.textContent = `${words((Date.now() - at) / 1000)} ago`;
    }
  }

  document.addEventListener("click", (event) => {
    const time = event.target.closest("time");
    if (!time || event.target.closest("a, button")) return;
    if (time.dataset.exact) delete time.dataset.exact;
    else time.dataset.exact = "1";
    if (time.dataset.exact) time.textContent = time.title;
    else update(time.parentElement);
  });
  update(document);
  document.addEventListener("htmx:load", (event) => update(event.target.parentElement || document));
  setInterval(() => update(document), EVERY_MS);
})();
