/* One stream a page says "read again"; fragments of the same page are then fetched. Closed while hidden. */
"use strict";

(() => {
  const QUIET_MS = 10_000;
  const RETRY_MS = 2000;
  const POLL_MS = 10_000;
  const body = document.body;
  const { stream, streamEvent, poll } = body.dataset;
  const button = document.getElementById("live");
  if (!stream && !poll) return;

  let source = null;
  let paused = false;
  let lostAt = null;
  let retry = null;
  let told = null;

  const clock = (at) => at.toLocaleTimeString("en-GB");
  const changed = () => htmx.trigger(body, poll || `${streamEvent}-changed`);
  const printed = () => htmx.trigger(body, "log-changed");

  function show() {
    if (!button) return;
    button.hidden = false;
    button.setAttribute("aria-pressed", String(!paused));
    button.querySelector("span").textContent = paused ? `Paused at ${clock(new Date())}` : "Live";
  }

  function tell() {
    const note = document.createElement("p");
    note.className = "notice wait";
    note.id = "live-lost";
    note.append(`No live updates since ${clock(lostAt)}. Trying again. `);
    const now = document.createElement("button");
    now.type = "button";
    now.className = "button small";
    now.textContent = "Try now";
    now.addEventListener("click", open);
    note.append(now);
    document.getElementById("live-lost")?.remove();
    document.getElementById("alert").before(note);
  }

  function lost() {
    close();
    if (paused || document.hidden) return;
    lostAt = lostAt || new Date();
    told = told || setTimeout(tell, QUIET_MS);
    retry = setTimeout(open, RETRY_MS);
  }

  function found() {
    lostAt = null;
    clearTimeout(told);
    told = null;
    document.getElementById("live-lost")?.remove();
    /* What happened before this stream began to listen, it does not tell. */
    changed();
    printed();
  }

  function open() {
    close();
    if (paused || document.hidden) return;
    source = new EventSource(stream);
    source.addEventListener("open", found);
    source.addEventListener("error", lost);
    source.addEventListener(streamEvent, changed);
    source.addEventListener("log", printed);
  }

  function close() {
    clearTimeout(retry);
    source?.close();
    source = null;
  }

  button?.addEventListener("click", () => {
    paused = !paused;
    show();
    if (paused) close();
    else if (stream) open();
    else changed();
  });
  document.addEventListener("visibilitychange", () => {
    if (!stream) return;
    if (document.hidden) close();
    else if (!paused) open();
  });
  show();
  if (stream) {
    document.addEventListener("DOMContentLoaded", open); /* htmx and the log listen from then on */
    window.addEventListener("pagehide", close);
  } else {
    setInterval(() => {
      if (!paused && !document.hidden) changed();
    }, POLL_MS);
  }
})();
