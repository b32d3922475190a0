/* A line of a log as nodes: the 16 ANSI colours become classes, other sequences go, everything else is text. */
"use strict";

window.astraeus = window.astraeus || {};

(() => {
  const SEQUENCE =
    /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])/g;
  /* Characters that reorder the text around them, or that no screen shows. */
  const HIDDEN = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
  const plainStyle = () => ({ bold: false, dim: false, italic: false, under: false, fore: null, back: null });

  function mark(character) {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    if (code < 0xa0) return "\ufffd";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  }

  /* The nearest of the 16 for one of the 256 colours or a true colour. */
  function nearest(red, green, blue) {
    const most = Math.max(red, green, blue);
    if (most - Math.min(red, green, blue) < 40) return most > 200 ? 15 : most > 100 ? 7 : 8;
    const bit = (value) => (value > most / 2 ? 1 : 0);
    return bit(red) + 2 * bit(green) + 4 * bit(blue);
  }

  function indexed(number) {
    if (number < 16) return number;
    if (number > 231) return nearest(...Array(3).fill(8 + 10 * (number - 232)));
    const cube = number - 16;
    const level = (value) => (value ? 55 + 40 * value : 0);
    return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
  }

  function extended(codes, at) {
    if (codes[at + 1] === 5) return [indexed(codes[at + 2] || 0), at + 2];
    if (codes[at + 1] === 2) return [nearest(codes[at + 2] || 0, codes[at + 3] || 0, codes[at + 4] || 0), at + 4];
    return [null, at + 1];
  }

  const FLAGS = { 1: ["bold", true], 2: ["dim", true], 3: ["italic", true], 4: ["under", true], 23: ["italic", false], 24: ["under", false] };

  function apply(style, parameters) {
    const codes = parameters.split(/[;:]/).map((each) => Number(each) || 0);
    for (let at = 0; at < codes.length; at += 1) {
      const code = codes[at];
      if (code === 0) Object.assign(style, plainStyle());
      else if (FLAGS[code]) style[FLAGS[code][0]] = FLAGS[code][1];
      else if (code === 22) Object.assign(style, { bold: false, dim: false });
      else if (code >= 30 && code <= 37) style.fore = code - 30;
      else if (code >= 90 && code <= 97) style.fore = code - 82;
      else if (code >= 40 && code <= 47) style.back = code - 40;
      else if (code >= 100 && code <= 107) style.back = code - 92;
      else if (code === 39) style.fore = null;
      else if (code === 49) style.back = null;
      else if (code === 38 || code === 48) {
        const [colour, next] = extended(codes, at);
        style[code === 38 ? "fore" : "back"] = colour;
        at = next;
      }
    }
  }

  function classes(style) {
    const names = ["bold", "dim", "italic", "under"].filter((name) => style[name]).map((name) => `ansi-${name}`);
    if (style.fore !== null) names.push(`ansi-${style.fore}`);
    if (style.back !== null) names.push(`ansi-on-${style.back}`);
    return names.join(" ");
  }

  function piece(text, style) {
    const shown = text.replace(HIDDEN, mark);
    const names = classes(style);
    if (!names) return document.createTextNode(shown);
    const span = document.createElement("span");
    span.className = names;
    span.textContent = shown;
    return span;
  }

  /* The nodes of one line's text, which the server has folded and cut (console/pages/log_text.py). */
  function lineNodes(text) {
    const line = document.createDocumentFragment();
    const style = plainStyle();
    let from = 0;
    for (const match of text.matchAll(SEQUENCE)) {
      if (match.index > from) line.append(piece(text.slice(from, match.index), style));
      if (match[2] === "m") apply(style, match[1]);
      from = match.index + match[0].length;
    }
    if (from < text.length) line.append(piece(text.slice(from), style));
    return line;
  }

  window.astraeus.lineNodes = lineNodes;
})();
