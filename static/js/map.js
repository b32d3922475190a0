/* The topology map: one tab stop with arrows between the tiles, details in the panel, changes drawn in place. */
"use strict";

(() => {
  const SHOW_AFTER_MS = 150;
  const map = document.getElementById("map");
  const panel = document.getElementById("map-panel");
  if (!map) return;
  const tiles = [...map.querySelectorAll("a.tile")];
  const racks = [...map.querySelectorAll("svg.tiles")].map((rack) => [...rack.querySelectorAll("a.tile")]);
  const known = new Map();
  let timer = null;
  let current = tiles.find((tile) => !tile.classList.contains("dim")) || tiles[0];

  /* --- The panel ------------------------------------------------------------------------------- */

  async function details(address) {
    const asked = map.dataset.for ? `&for=${encodeURIComponent(map.dataset.for)}` : "";
    const answer = await fetch(`${address}?panel=1${asked}`, { headers: { "HX-Request": "true" } });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.text();
  }

  async function show(tile, { quiet = false } = {}) {
    const address = tile.getAttribute("href");
    picked(tile);
    try {
      if (!known.has(address)) known.set(address, await details(address));
    } catch {
      return; // the machine has gone; the next drawing is without it
    }
    if (map.querySelector(".tile.picked") !== tile) return;
    const read = new DOMParser().parseFromString(known.get(address), "text/html");
    panel.replaceChildren(...read.body.childNodes);
    ring(quiet);
  }

  /* The other machines of the picked one's runs: a ring each, and a sentence for who does not see them. */
  function ring(quiet) {
    const told = [...panel.querySelectorAll("[data-beside]")];
    const ids = new Set(told.flatMap((run) => run.dataset.beside.split(" ").filter(Boolean)));
    for (const tile of map.querySelectorAll(".tile.beside")) tile.classList.remove("beside");
    for (const id of ids) document.getElementById(`m-${id}`)?.classList.add("beside");
    const said = told.filter((run) => run.dataset.beside).map((run) => run.textContent.trim());
    if (said.length && !quiet) window.astraeus.say(said.join(" "));
  }

  function picked(tile) {
    for (const other of map.querySelectorAll(".picked, .beside")) other.classList.remove("picked", "beside");
    tile.classList.add("picked");
  }

  const soon = (tile) => {
    clearTimeout(timer);
    timer = setTimeout(show, SHOW_AFTER_MS, tile);
  };
  map.addEventListener("pointerover", (event) => {
    const tile = event.target.closest("a.tile");
    if (tile) soon(tile);
  });
  map.addEventListener("focusin", (event) => {
    const tile = event.target.closest("a.tile");
    if (!tile) return;
    stop(tile);
    soon(tile);
  });

  /* --- The keyboard ---------------------------------------------------------------------------- */

  function stop(tile) {
    current?.setAttribute("tabindex", "-1");
    current = tile;
    current?.setAttribute("tabindex", "0");
  }

  const box = (tile) => tile.querySelector("use").getBoundingClientRect();

  /* The nearest tile above or below, by where they are drawn. */
  function vertical(tile, way) {
    const from = box(tile);
    let best = null;
    let least = Infinity;
    for (const other of tiles) {
      const to = box(other);
      const dy = (to.top - from.top) * way;
      if (dy < from.height / 2) continue;
      const distance = dy + Math.abs(to.left - from.left) * 2;
      if (distance < least) [best, least] = [other, distance];
    }
    return best;
  }

  function target(key, tile) {
    const at = tiles.indexOf(tile);
    const rack = racks.findIndex((members) => members.includes(tile));
    switch (key) {
      case "ArrowRight":
        return tiles[at + 1];
      case "ArrowLeft":
        return tiles[at - 1];
      case "ArrowDown":
        return vertical(tile, 1);
      case "ArrowUp":
        return vertical(tile, -1);
      case "Home":
        return racks[rack][0];
      case "End":
        return racks[rack].at(-1);
      case "PageDown":
        return racks[rack + 1]?.[0];
      case "PageUp":
        return racks[rack - 1]?.[0];
      default:
        return undefined;
    }
  }

  map.addEventListener("keydown", (event) => {
    const tile = event.target.closest("a.tile");
    if (!tile || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = target(event.key, tile);
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  for (const tile of tiles) tile.setAttribute("tabindex", "-1");
  stop(current);
  /* Whoever was faster than this script stands on a tile already. */
  const entered = document.activeElement?.closest("a.tile");
  if (entered) {
    stop(entered);
    soon(entered);
  }

  /* --- What has changed ------------------------------------------------------------------------ */

  /* New patterns, other references and numbers; nothing moves, and no tile is drawn anew. */
  function redraw(read) {
    const patterns = read.getElementById("map-patterns");
    if (!patterns) return;
    document.getElementById("map-patterns").replaceChildren(...patterns.children);
    for (const tile of tiles) {
      const fresh = read.getElementById(tile.id);
      if (!fresh) continue;
      const uses = fresh.querySelectorAll("use"); /* its cells, and its mark where the map is shown for a run */
      tile.querySelectorAll("use").forEach((use, at) => use.setAttribute("href", uses[at].getAttribute("href")));
      tile.setAttribute("aria-label", fresh.getAttribute("aria-label"));
      tile.classList.toggle("dim", fresh.classList.contains("dim"));
    }
    for (const leaf of document.querySelectorAll("[id^=count-], [id^=fabric-words-]")) {
      const fresh = read.getElementById(leaf.id);
      if (fresh) leaf.textContent = fresh.textContent;
    }
  }

  document.body.addEventListener("map-changed", async () => {
    known.clear();
    const answer = await fetch(location.href).catch(() => null);
    if (answer?.ok) redraw(new DOMParser().parseFromString(await answer.text(), "text/html"));
    const tile = map.querySelector(".tile.picked");
    if (tile) show(tile, { quiet: true });
  });
})();
