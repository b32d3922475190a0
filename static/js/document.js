/* The run document as text: where a place in it is, and what its JSON Schema knows of that place. No page here. */
"use strict";

window.astraeus = window.astraeus || {};

(() => {
  /* The end of the string that begins at `from`; one that is not closed ends with its line. */
  function stringEnd(text, from) {
    for (let at = from + 1; at < text.length; at += 1) {
      if (text[at] === "\\") at += 1;
      else if (text[at] === '"') return { end: at + 1, closed: true };
      else if (text[at] === "\n") return { end: at, closed: false };
    }
    return { end: text.length, closed: false };
  }

  const WORD = /[^\s{}[\],:"]+/y;

  function token(text, from) {
    if (text[from] === '"') return stringEnd(text, from);
    WORD.lastIndex = from;
    const word = WORD.exec(text);
    return { end: from + (word ? word[0].length : 1), closed: true };
  }

  function plain(lexeme) {
    try {
      return JSON.parse(lexeme);
    } catch {
      return lexeme.replaceAll('"', "");
    }
  }

  function step(stack, lexeme) {
    const top = stack.at(-1);
    if (lexeme === "{" || lexeme === "[") {
      stack.push({ list: lexeme === "[", index: 0, key: null, wantsKey: lexeme === "{", keys: [] });
    } else if (lexeme === "}" || lexeme === "]") stack.pop();
    else if (!top) return;
    else if (lexeme === "," && top.list) top.index += 1;
    else if (lexeme === ",") Object.assign(top, { key: null, wantsKey: true });
    else if (lexeme === ":") top.wantsKey = false;
    else if (top.wantsKey) {
      top.key = plain(lexeme);
      top.keys.push(top.key);
    }
  }

  const stepsOf = (frames) => frames.map((each) => (each.list ? each.index : each.key));

  /* Where the caret is: the path of the object or list around it, what is being typed (from, end), whether that is a
     key, and the keys that stand there before it. */
  function locate(text, caret) {
    const stack = [];
    let at = 0;
    while (at < caret) {
      if (/\s/.test(text[at])) {
        at += 1;
        continue;
      }
      const { end, closed } = token(text, at);
      const inside = text[at] === '"' ? caret < end || !closed : WORD.test(text[at]) && caret <= end;
      WORD.lastIndex = 0;
      /* A string that is not closed ends at the caret: what stands behind it is no part of it. */
      if (inside && caret <= end) return place(stack, text, at, closed ? end : caret, caret);
      step(stack, text.slice(at, end));
      at = end;
    }
    return place(stack, text, caret, caret, caret);
  }

  function place(stack, text, from, end, caret) {
    const top = stack.at(-1);
    const holder = stepsOf(stack.slice(0, -1));
    const key = Boolean(top && !top.list && top.wantsKey);
    const path = !top || key ? holder : stepsOf(stack);
    return {
      path,
      key,
      root: !top,
      from,
      end,
      typed: text.slice(from, caret).replaceAll('"', ""),
      whole: plain(text.slice(from, end)),
      keys: top && !top.list ? top.keys : [],
    };
  }

  /* The schema of the value at a path; undefined where the document has no such place. */
  function schemaAt(schema, path) {
    let node = bare(schema, schema);
    for (const each of path) {
      if (!node) return undefined;
      node = bare(schema, typeof each === "number" ? node.items : (node.properties?.[each] ?? anyValue(node)));
    }
    return node;
  }

  function anyValue(node) {
    if (node.patternProperties) return Object.values(node.patternProperties)[0];
    return typeof node.additionalProperties === "object" ? node.additionalProperties : undefined;
  }

  /* Without references and "or null"; words that stand beside a reference win. */
  function bare(schema, node) {
    if (!node) return undefined;
    const { $ref, anyOf, ...own } = node;
    if ($ref) return { ...bare(schema, schema.$defs[$ref.split("/").at(-1)]), ...own };
    if (anyOf) return { ...bare(schema, anyOf.find((each) => each.type !== "null")), ...own };
    return node;
  }

  const EMPTY = { object: "{}", array: "[]", string: '""', boolean: "false" };

  /* What may be typed at a place: the text to insert, where the caret goes in it, and what it means. */
  function completions(schema, where) {
    if (where.root) return [];
    const node = schemaAt(schema, where.path);
    if (!node) return [];
    const found = where.key ? keysOf(schema, node, where) : valuesOf(node);
    const typed = where.typed.toLowerCase();
    const fits = (each) => each.label.toLowerCase().includes(typed) && each.label !== where.typed;
    const begins = (each) => (each.label.toLowerCase().startsWith(typed) ? 0 : 1);
    return found.filter(fits).sort((one, other) => begins(one) - begins(other));
  }

  function keysOf(schema, node, where) {
    return Object.keys(node.properties ?? {})
      .filter((name) => !where.keys.includes(name) || name === where.whole)
      .map((name) => {
        const field = bare(schema, node.properties[name]);
        const empty = EMPTY[field.type] ?? "";
        const inside = empty.length === 2 ? 1 : 0;
        const text = `"${name}": ${empty}`;
        return { label: name, about: field.title ?? "", text, caret: text.length - inside };
      });
  }

  function valuesOf(node) {
    const words = node.enum ?? (node.const !== undefined ? [node.const] : node.type === "boolean" ? [true, false] : []);
    return words.map((word) => {
      const text = JSON.stringify(word);
      return { label: String(word), about: word === node.default ? "default" : "", text, caret: text.length };
    });
  }

  /* What is to be said of the field at the caret: its path, title, description, values and default. */
  function help(schema, where) {
    const path = where.key && schemaAt(schema, [...where.path, where.whole]) ? [...where.path, where.whole] : where.path;
    const named = path.findLastIndex((each) => typeof each === "string");
    if (named < 0) return null;
    const node = schemaAt(schema, path.slice(0, named + 1));
    if (!node?.title) return null;
    const text = path.slice(0, named + 1).reduce((said, each) => (typeof each === "number" ? `${said}[${each}]` : said ? `${said}.${each}` : each), "");
    return { path: text, title: node.title, about: node.description ?? "", values: valuesSaid(node) };
  }

  function valuesSaid(node) {
    const said = [];
    if (node.enum) said.push(`One of ${node.enum.join(", ")}.`);
    if (node.minimum !== undefined && node.maximum !== undefined) said.push(`From ${node.minimum} to ${node.maximum}.`);
    if (node.default !== undefined && typeof node.default !== "object") said.push(`Default: ${node.default}.`);
    return said.join(" ");
  }

  window.astraeus.runDocument = { locate, completions, help };
})();
