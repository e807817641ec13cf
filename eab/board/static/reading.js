// The text that contains the selected token, from the prompt to its end, with its forks; and
// buttons for the texts above and below.

import { weightWords } from "./box_words.js";
/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { wordButton } from "./buttons.js";
import { element } from "./elements.js";
import { percent } from "./format.js";
import { statusAt, tokenCountAt, weightAt } from "./path_state.js";
import { lineOf } from "./same_answer.js";

export class Reading {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    this.place = element("span", { class: "of-forks" });
    const above = wordButton("Text above", "read the text above this one", () => this.go(-1));
    const below = wordButton("Text below", "read the text below this one", () => this.go(1));
    const head = element("p", { class: "reading-head" }, above, below, this.place);
    this.text = element("p", { class: "reading-text mono", tabindex: "0" });
    this.text.addEventListener("click", (event) => this.choose(event));
    const name = { class: "reading", "aria-label": "Text" };
    this.root = element("section", name, head, this.text);
  }

  render() {
    const path = this.store.paths.get(this.view.selection.path ?? -1);
    if (!path) return this.text.replaceChildren();
    const { branches } = this.view;
    const drawn = new Set(branches.drawn());
    const isRead = (/** @type {Path} */ part) =>
      !part.tokens.length || (this.view.hasStarted(part) && drawn.has(branches.boxOf(part)));
    const line = lineOf(branches.boxOf(path));
    const chosen = line.includes(path) ? line[line.length - 1] : path;
    const parts = this.store.lineThrough(chosen).filter(isRead);
    const last = parts[parts.length - 1] ?? path;
    const texts = this.texts();
    const box = branches.boxOf(last);
    const number = texts.indexOf(box) + 1;
    const common = box.joined ? `, its box ${percent(weightAt(box, this.view.cursor))}` : "";
    const weights = weightWords(this.store, last, this.view.cursor);
    const weight = `weight ${weights.join(", ")}${common}`;
    const place = number ? `text ${number} of ${texts.length}, ` : "";
    this.place.textContent = `${place}${weight}`;
    const prompt = element("span", { class: "prompt" }, this.store.run.prompt);
    this.text.replaceChildren(prompt, ...parts.flatMap((part) => this.partOf(part)));
    // Scroll the box, not the page, to the token or to the end of the prompt.
    const read = this.text.querySelector("mark") ?? this.text.querySelector("[data-path]");
    const top = /** @type {HTMLElement | null} */ (read)?.offsetTop ?? 0;
    this.text.scrollTop = top - this.text.clientHeight / 2;
  }

  /** The paths that have not forked, from the top. */
  texts() {
    const { rank } = this.view.layout;
    return this.view
      .shownPaths()
      .filter((path) => statusAt(path, this.view.cursor) !== "forked")
      .sort((a, b) => rank[a.id] - rank[b.id]);
  }

  /** The tokens of a path, and a mark where it forked. @param {Path} path */
  partOf(path) {
    const count = tokenCountAt(path, this.view.cursor);
    const selected = this.view.tokenIn(path);
    const tokens = path.tokens.slice(0, count).map(({ piece }, index) => {
      const place = { "data-path": path.id, "data-token": index };
      return element(index === selected ? "mark" : "span", place, piece);
    });
    if (statusAt(path, this.view.cursor) !== "forked") return tokens;
    const branches = this.store.childrenOf(path.id).length;
    const help = `Here the path forked into ${branches} branches`;
    return [...tokens, element("span", { class: "reading-fork", title: help }, "◆")];
  }

  /** @param {MouseEvent} event */
  choose(event) {
    const { path, token } = /** @type {HTMLElement} */ (event.target).dataset;
    if (path && token) this.send("select", Number(path), Number(token));
  }

  /** @param {-1 | 1} direction */
  go(direction) {
    const texts = this.texts();
    const selected = this.store.paths.get(this.view.selection.path ?? -1);
    if (!selected || !texts.length) return;
    const line = this.store.lineThrough(selected).map(({ id }) => id);
    const at = texts.findIndex(({ id }) => line.includes(id));
    const next = texts[Math.max(0, Math.min(texts.length - 1, at + direction))];
    this.send("selectLast", next);
  }
}
