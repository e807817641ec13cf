// Finds words in the texts of the tree, even across forks.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Send, TokenPlace } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { element, iconButton, wordButton } from "./elements.js";
import { textOf } from "./paths.js";

const MAX_PLACES = 500;

export class Finder {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    const name = "Find in the texts";
    this.input = element("input", { type: "search", "aria-label": name, placeholder: name });
    this.count = element("output", { "aria-live": "polite" });
    this.root = element(
      "div",
      { class: "finder", role: "search", hidden: "" },
      this.input,
      wordButton("Previous", "the place before (Shift + Enter)", () => this.next(-1)),
      wordButton("Next", "the next place (Enter)", () => this.next(1)),
      this.count,
      iconButton("close", "Close the search (Escape)", () => this.close()),
    );
    this.input.addEventListener("input", () => this.find());
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    /** The tokens where the matches end. @type {TokenPlace[]} */
    this.places = [];
    this.current = -1;
  }

  clear() {
    this.places = [];
    this.view.found = new Set();
    this.current = -1;
    this.input.value = this.count.textContent = "";
    this.root.hidden = true;
  }

  open() {
    this.root.hidden = false;
    this.input.focus();
    this.input.select();
  }

  close() {
    this.clear();
    this.send("render");
    this.send("takeFocus");
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.key === "Escape") this.close();
    else if (event.key === "Enter" && event.target === this.input)
      this.next(event.shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  find() {
    const wanted = this.input.value.toLowerCase();
    const paths = wanted ? [...this.store.paths.values()] : [];
    this.places = paths.flatMap((path) => this.placesIn(path, wanted)).slice(0, MAX_PLACES);
    this.view.found = new Set(this.places.map((place) => place.path));
    this.current = -1;
    this.renderCount();
    this.send("render");
  }

  /**
   * The matches that end in this path; they may start in its ancestors.
   * @param {Path} path @param {string} wanted
   */
  placesIn(path, wanted) {
    const before = this.textBefore(path, wanted.length - 1);
    const pieces = path.tokens.map((token) => token.piece.toLowerCase());
    const text = before + pieces.join("");
    /** @type {TokenPlace[]} */
    const places = [];
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + 1)) {
      const end = at + wanted.length - before.length; // in the path's own text
      places.push({ path: path.id, token: tokenAt(pieces, end) });
    }
    return places;
  }

  /** The end of the text that leads to this path. @param {Path} path @param {number} length */
  textBefore(path, length) {
    let text = "";
    let at = this.store.paths.get(path.parent);
    while (at && text.length < length) {
      text = textOf(at, at.tokens.length).toLowerCase() + text;
      at = this.store.paths.get(at.parent);
    }
    return length > 0 ? text.slice(-length) : "";
  }

  /** @param {-1 | 1} direction */
  next(direction) {
    if (!this.places.length) return;
    this.current = (this.current + direction + this.places.length) % this.places.length;
    this.renderCount();
    this.send("reveal", this.places[this.current]);
  }

  renderCount() {
    const count = this.places.length === MAX_PLACES ? `${MAX_PLACES} or more` : this.places.length;
    const words = this.current < 0 ? `${count} found` : `${this.current + 1} of ${count}`;
    this.count.textContent = this.input.value ? words : "";
  }
}

/**
 * The token that contains the last of the first `length` characters.
 * @param {string[]} pieces @param {number} length
 */
function tokenAt(pieces, length) {
  let token = 0;
  for (let left = length; token < pieces.length - 1 && left > pieces[token].length; token += 1) {
    left -= pieces[token].length;
  }
  return token;
}
