// "How likely is it that ...?": the labels of the run, each with its estimate and its certain
// bounds, and the controls that make them. A mark labels all that follows a token; a rule labels
// the texts for which it holds. Python computes the numbers (eab/analysis/labels.py).
//
// And the search, which finds words in the texts of the tree, even across forks.

/** @import { RunStore } from "./run_store.js" */
/** @import { LabelRule, LabelShare, Path, Send, TokenPlace } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { button, element, iconButton, wordButton } from "./elements.js";
import { percent } from "./formatting.js";
import { textOf } from "./paths.js";

const MOST = 6; // labels
const MOST_CHARACTERS = 40; // of a label
const BY_HAND = ["good", "bad"]; // the labels of the first two keys, until there are others
const KINDS = { contains: "contains", pattern: "matches", json: "is valid JSON" };
const BEGINS = "begins"; // no rule: the model reads the text
const ASK = { until: 0, text: "", repeat: false };
const WIDTHS = [0.2, 0.1, 0.05, 0.01]; // of what may stay unexplored

/** The sign of a label, beside its colour: the key that marks with it. @param {number} label */
export function signOf(label) {
  return "①②③④⑤⑥"[label] ?? "";
}

/**
 * The label of a path at a step: that of the last token up to there which decides one; -1 for none.
 * @param {RunStore} store @param {Path} path @param {number} step
 */
export function labelAt({ labels, paths }, path, step) {
  if (!labels.cover.size) return -1;
  for (let at = /** @type {Path | undefined} */ (path); at; at = paths.get(at.parent)) {
    const { born } = at;
    const decided = (labels.cover.get(at.id) ?? []).filter(({ token }) => born + token <= step);
    if (decided.length) return decided.reduce((a, b) => (b.token >= a.token ? b : a)).label;
  }
  return -1;
}

/** The names that the keys 1 to 6 mark with. @param {RunStore} store */
export function markNames({ labels }) {
  const names = labels.shares.map(({ name }) => name);
  for (const name of BY_HAND) if (names.length < 2 && !names.includes(name)) names.push(name);
  return names;
}

/**
 * The rules with a mark at this token, or without it if it is there already.
 * @param {LabelRule[]} rules @param {string} label @param {number} path @param {number} token
 * @returns {LabelRule[]}
 */
export function withMark(rules, label, path, token) {
  const isHere = (/** @type {LabelRule} */ rule) =>
    rule.kind === "mark" && rule.path === path && rule.token === token;
  const others = rules.filter((rule) => !isHere(rule));
  const isTakenBack = rules.some((rule) => isHere(rule) && rule.label === label);
  return isTakenBack ? others : [...others, { label, kind: "mark", text: "", path, token }];
}

/** @param {LabelShare} share */
function inWords({ estimate, low, high, error }) {
  if (percent(low) === percent(high)) return `${percent(low)}, certain`;
  const about = error === null ? "" : ` ± ${percent(error)}`;
  return `${percent(low)} to ${percent(high)}, estimate ${percent(estimate)}${about}`;
}

/** @param {number} runs */
function helpOf(runs) {
  const range =
    "The probability is certainly in this range: the filled part is the texts that were seen, the " +
    "hatched part is all that was not explored. The estimate (the line) is";
  return runs > 1
    ? `${range} the mean of ${runs} runs with different seeds, each the weight of its texts with ` +
        "the label; ± is its standard error: how far such a mean typically is from the probability."
    : `${range} the weight of the texts with the label; a single tree has no standard error.`;
}

/** One label: sign, name, bar, numbers. */
class Chip {
  /** @param {RunStore} store @param {Send} send */
  constructor(store, send) {
    this.store = store;
    this.send = send;
    this.name = button("", "change the name", "", () => this.edit(true));
    this.name.className = "label-name";
    const attributes = {
      type: "text",
      maxlength: MOST_CHARACTERS,
      "aria-label": "Name of the label",
    };
    this.input = element("input", attributes);
    this.input.onkeydown = (event) => this.onKey(event);
    this.input.oninput = () => this.input.setCustomValidity("");
    this.input.onblur = () => this.edit(false);
    this.input.hidden = true;
    this.known = element("i", { class: "known" });
    this.open = element("i", { class: "open" });
    this.tick = element("i", { class: "estimate" });
    const bar = element("span", { class: "label-bar" }, this.open, this.known, this.tick);
    this.numbers = element("span");
    this.remove = iconButton("close", "Remove this label", () => send("removeLabel", this.label));
    this.root = element("li", {}, this.name, this.input, bar, this.numbers, this.remove);
    this.label = "";
  }

  /** Show the field for another name, or the name. @param {boolean} isOpen */
  edit(isOpen) {
    this.name.hidden = isOpen;
    this.input.hidden = !isOpen;
    if (!isOpen) return;
    this.input.value = this.label;
    this.input.setCustomValidity("");
    this.input.select();
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    event.stopPropagation();
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    if (event.key === "Enter" && !this.rename()) return;
    this.edit(false);
    this.name.focus();
  }

  /** Ask for the typed name, or say why the label cannot have it. */
  rename() {
    const name = this.input.value.trim();
    const isTaken = this.store.labels.shares.some((share) => share.name === name);
    if (!name) this.input.setCustomValidity("Give a name.");
    else if (name !== this.label && isTaken)
      this.input.setCustomValidity("Another label has this name.");
    else if (name !== this.label) this.send("renameLabel", this.label, name);
    return this.input.reportValidity();
  }

  /** @param {LabelShare} share @param {number} place @param {boolean} canChange */
  render(share, place, canChange) {
    const { name, estimate, low, high } = share;
    this.label = name;
    this.root.className = `label-chip label-${place}`;
    this.root.title = helpOf(this.store.labels.runs);
    this.name.textContent = `${signOf(place)} ${name}`;
    this.name.setAttribute("aria-label", `${name}: change the name`);
    this.name.disabled = !canChange;
    this.numbers.textContent = inWords(share);
    this.known.style.width = `${(100 * low).toFixed(1)}%`;
    Object.assign(this.open.style, { left: `${100 * low}%`, width: `${100 * (high - low)}%` });
    this.tick.style.left = `${(100 * estimate).toFixed(1)}%`;
    this.remove.hidden = !canChange;
    this.remove.setAttribute("aria-label", `Remove the label ${name}`);
  }
}

export class LabelBar {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    const help = "how likely is it that a text contains a word? (l)";
    this.button = wordButton("How likely?", help, () => send("toggleLabels"));
    this.kind = element("select", { "aria-label": "Kind of rule" });
    for (const [kind, words] of Object.entries(KINDS))
      this.kind.append(element("option", { value: kind }, words));
    this.begins = element("option", { value: BEGINS }, "begins with");
    this.kind.onchange = () => this.render();
    const name = { "aria-label": "Word, or pattern", placeholder: "a word", maxlength: 500 };
    this.input = element("input", { type: "text", ...name });
    const add = wordButton("Show", "how likely that is (Enter)", () => this.add());
    const words = "How likely is it that the text";
    const close = iconButton("close", "Close (Escape)", () => send("toggleLabels"));
    this.form = element("p", { class: "label-form" }, words, this.kind, this.input, add, close);
    this.form.addEventListener("keydown", (event) => this.onKey(event));
    /** @type {Chip[]} */
    this.chips = [];
    this.list = element("ul", { "aria-label": "Labels", "aria-live": "polite" });
    this.rest = element("span", { class: "label-rest" });
    const back = () => send("undoLabels");
    this.undo = wordButton("Undo", "take the last change of labels back (u)", back);
    this.until = element("select", { "aria-label": "Until this share is unexplored" });
    for (const width of WIDTHS)
      this.until.append(element("option", { value: width }, `to ${percent(width)}`));
    this.until.value = String(WIDTHS[1]);
    const explore = () => send("extend", { ...ASK, until: Number(this.until.value) });
    const why =
      "let the model write the most likely texts that were not seen, at most 256 at a time: the " +
      "ranges shrink";
    this.explore = wordButton("Explore", why, explore);
    const again = () => send("extend", { ...ASK, repeat: true });
    const error = "make 7 more runs: the estimates get a standard error, and the ranges shrink";
    this.repeat = wordButton("Repeat with 8 seeds", error, again);
    const foot = [this.rest, this.explore, this.until, this.repeat, this.undo];
    this.foot = element("p", { class: "label-foot" }, ...foot);
    this.given = element("ul", { class: "given-texts", "aria-live": "polite" });
    const parts = [this.form, this.list, this.foot, this.given];
    this.root = element("div", { class: "labels", hidden: "" }, ...parts);
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.key === "Escape") this.send("toggleLabels");
    else if (event.key === "Enter" && event.target !== this.kind) this.add();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  add() {
    const text = this.kind.value === "json" ? "" : this.input.value.trim();
    if (!text && this.kind.value !== "json") return this.focus();
    if (this.kind.value === BEGINS) return this.send("extend", { ...ASK, text });
    const kind = /** @type {LabelRule["kind"]} */ (this.kind.value);
    const label = (kind === "json" ? "JSON" : text).slice(0, MOST_CHARACTERS);
    const { rules } = this.store.labels;
    this.input.value = "";
    if (rules.some((rule) => rule.label === label && rule.kind === kind)) return;
    this.send("setLabels", [...rules, { label, kind, text, path: 0, token: 0 }]);
  }

  render() {
    const { labels, offers } = this.store;
    const canChange = Boolean(offers.label);
    const isOpen = canChange && this.view.labelsOpen;
    this.button.hidden = !canChange;
    this.button.setAttribute("aria-expanded", String(isOpen));
    this.root.hidden = !isOpen && !labels.shares.length && !labels.given.length;
    this.form.hidden = !isOpen;
    this.input.hidden = this.kind.value === "json";
    this.input.disabled = labels.shares.length >= MOST;
    if (!offers.extend) this.begins.remove();
    else if (!this.begins.parentNode) this.kind.append(this.begins);
    while (this.chips.length < labels.shares.length)
      this.chips.push(new Chip(this.store, this.send));
    const shown = this.chips.slice(0, labels.shares.length);
    for (const [place, chip] of shown.entries())
      chip.render(labels.shares[place], place, canChange);
    const isSame = shown.every(({ root }, place) => this.list.children[place] === root);
    if (!isSame || shown.length !== this.list.childElementCount)
      this.list.replaceChildren(...shown.map(({ root }) => root));
    this.undo.hidden = !canChange || !this.view.labelHistory.length;
    this.rest.textContent = this.restWords();
    const isLeft = labels.shares.length && percent(labels.unexplored) !== percent(0);
    this.explore.hidden = this.until.hidden = !offers.extend || !isLeft;
    this.repeat.hidden = !offers.repeat || !labels.shares.length;
    this.foot.hidden = this.undo.hidden && !this.rest.textContent;
    this.given.replaceChildren(
      ...labels.given.map(([path, sentence]) => {
        const show = () => this.send("reveal", { path, token: 0 });
        return element("li", {}, wordButton(sentence, "show it in the tree", show));
      }),
    );
  }

  /** What the bars do not say, in a sentence. */
  restWords() {
    const { shares, runs, unexplored, explored } = this.store.labels;
    const { length } = shares;
    if (length >= MOST) return `There are at most ${MOST} labels.`;
    if (!length)
      return this.view.labelsOpen ? "Or select a token and press 1 or 2 to mark it." : "";
    if (percent(unexplored) === percent(0))
      return "Nothing is left to explore: the label of every possible text is known.";
    const goOn = this.store.offers.extend ? "; press Explore to go on" : "";
    const more = explored ? ` ${explored} more texts were explored${goOn}.` : "";
    const mean = runs > 1 ? ` Estimates: mean of ${runs} runs ± standard error.` : "";
    return `${percent(unexplored)} was not explored (hatched).${more}${mean}`;
  }
}

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
