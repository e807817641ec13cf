// Find words in the texts of the tree, also where they go over a fork.

import { element } from "./svg.js";
import { button } from "./controls.js";

const MOST = 500; // places

export class Finder {
  constructor(board) {
    this.board = board;
    this.root = element("div", { class: "finder", role: "search", hidden: "" });
    this.input = element("input", { type: "search", "aria-label": "Find in the texts", placeholder: "Find in the texts" });
    this.count = element("output", { "aria-live": "polite" });
    this.root.append(this.input, button("Next", "Next place (Enter)", () => this.next(1)), this.count, button("✕", "Close the search (Escape)", () => this.close()));
    this.input.addEventListener("input", () => this.find());
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.forget();
  }

  forget() {
    Object.assign(this, { places: [], paths: new Set(), at: -1 });
    this.input.value = this.count.textContent = "";
    this.root.hidden = true;
  }

  open() {
    this.root.hidden = false;
    this.input.focus();
    this.input.select();
  }

  close() {
    this.forget();
    this.board.render();
    this.board.root.focus({ preventScroll: true });
  }

  key(event) {
    if (event.key === "Escape") this.close();
    else if (event.key === "Enter" && event.target === this.input) this.next(event.shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  find() {
    const wanted = this.input.value.toLowerCase();
    this.places = wanted ? [...this.board.paths.values()].flatMap((path) => this.within(path, wanted)).slice(0, MOST) : [];
    this.paths = new Set(this.places.map((place) => place.path));
    this.at = -1;
    this.tell();
    this.board.render();
  }

  // Places in one path: what begins in its ancestors is its own if it ends in its text.
  within(path, wanted) {
    const before = this.tail(path.parent, wanted.length - 1);
    const pieces = path.tokens.map((token) => token[0].toLowerCase());
    const text = before + pieces.join("");
    const found = [];
    for (let from = text.indexOf(wanted); from >= 0; from = text.indexOf(wanted, from + 1)) {
      let token = 0;
      for (let left = from + wanted.length - before.length; token < pieces.length - 1 && left > pieces[token].length; token += 1) left -= pieces[token].length;
      found.push({ path: path.id, token });
    }
    return found;
  }

  tail(id, length) {
    let text = "";
    for (let at = this.board.paths.get(id); at && text.length < length; at = this.board.paths.get(at.parent)) {
      text = at.tokens.map((token) => token[0].toLowerCase()).join("") + text;
    }
    return length > 0 ? text.slice(-length) : "";
  }

  next(direction) {
    if (!this.places.length) return;
    this.at = (this.at + direction + this.places.length) % this.places.length;
    this.tell();
    this.board.reveal(this.places[this.at]);
  }

  tell() {
    const count = this.places.length === MOST ? `${MOST} or more` : this.places.length;
    this.count.textContent = !this.input.value ? "" : this.at < 0 ? `${count} found` : `${this.at + 1} of ${count}`;
  }
}
