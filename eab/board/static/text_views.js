// The pictures as text. On a phone the tree is an outline: each path is a paragraph with its whole
// text, indented below its fork, with its weight at the left edge and each token's entropy as a
// colour below the token. The outline is part of the page, so fingers scroll and enlarge it like
// any text. And the charts are tables, for people who cannot see them or who want the numbers.

/** @import { Tooltip } from "./inspector.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { Path, PathRows, Send, Step, TokenPlace } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import {
  entropyClass,
  foldedWords,
  joinedWords,
  markOf,
  nameOf,
  statusWord,
  weightWords,
} from "./box_marks.js";
import { element, set } from "./elements.js";
import { missedFork } from "./fork_reasons.js";
import { bytes, percent } from "./formatting.js";
import { tokenTip } from "./inspector.js";
import { placeIn, statusAt, textOf, tokenCountAt, weightAt } from "./paths.js";

const INDENT = 11; // px per fork
const MOST_INDENT = 66; // px; deep trees are indented less per fork to leave room for texts

/** The paragraph of a path. */
class Item {
  /** @param {string} kind "path" or "prompt" */
  constructor(kind) {
    this.weight = element("span", { class: "outline-weight" });
    this.text = element("span", { class: "outline-text" });
    this.mark = element("span", { class: "outline-mark" });
    this.fold = element("button", { type: "button", class: "outline-fold" });
    this.body = element("span", { class: "outline-body" }, this.text, this.mark);
    const state = { class: `outline-item ${kind}`, role: "treeitem", tabindex: "-1" };
    this.root = element("div", state, this.weight, this.body);
    this.filledWith = "";
  }
}

export class Outline {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send @param {Tooltip} tooltip */
  constructor(store, view, send, tooltip) {
    this.store = store;
    this.view = view;
    this.send = send;
    this.tooltip = tooltip;
    /** @type {Map<number, Item>} */
    this.items = new Map();
    this.prompt = new Item("prompt");
    const name = { class: "outline", role: "tree", "aria-label": "Tree of generated texts" };
    this.root = element("div", name, this.prompt.root);
    this.root.addEventListener("click", (event) => this.choose(event));
    this.root.addEventListener("pointermove", (event) => this.point(event));
    this.root.addEventListener("pointerleave", () => this.leave());
  }

  clear() {
    for (const { root } of this.items.values()) root.remove();
    this.items.clear();
  }

  /** Keep the height while the run grows, so what is below stays where it is. */
  keepHeight() {
    this.root.style.minHeight = `${this.root.offsetHeight}px`;
  }

  // ---- pointer

  /** @param {MouseEvent} event @returns {TokenPlace | null} the token under the pointer */
  placeOf(event) {
    const target = /** @type {Element} */ (event.target);
    const item = /** @type {HTMLElement | null} */ (target.closest(".outline-item.path"));
    const box = item && this.boxOf(Number(item.dataset.path));
    if (!item || !box) return null;
    const token = /** @type {HTMLElement | null} */ (target.closest("[data-token]"));
    const count = tokenCountAt(box, this.view.cursor);
    const index = token ? Number(token.dataset.token) : count - 1; // next to the text: its end
    const { path, index: own } = placeIn(box, index);
    return { path: path.id, token: own };
  }

  /** @param {number} id */
  boxOf(id) {
    const path = this.store.paths.get(id);
    return path && this.view.branches.boxOf(path);
  }

  /** @param {MouseEvent} event */
  choose(event) {
    const fold = /** @type {HTMLElement} */ (event.target).closest(".outline-fold");
    if (fold) return this.send("unfold", Number(fold.getAttribute("data-fork")));
    const place = this.placeOf(event);
    if (!place) return;
    this.send("select", place.path, place.token);
    // The drawer opens from below, so keep the chosen token visible above it.
    const chosen = this.root.querySelector(".token.selected") ?? this.root;
    chosen.scrollIntoView({ block: "nearest" });
  }

  /** Show a token's details for a mouse; fingers cannot hover. @param {PointerEvent} event */
  point(event) {
    if (event.pointerType !== "mouse" || event.buttons) return;
    const place = this.placeOf(event);
    const path = place && this.store.paths.get(place.path);
    if (this.view.hovered !== (place?.path ?? null)) this.send("hover", place?.path ?? null);
    if (!place || !path?.tokens[place.token]) return this.tooltip.hide();
    this.tooltip.show(event, tokenTip(this.store, path, place.token));
  }

  leave() {
    this.tooltip.hide();
    if (this.view.hovered !== null) this.send("hover", null);
  }

  /** @param {number} id */
  focusBox(id) {
    const root = this.items.get(id)?.root;
    root?.focus({ preventScroll: true });
    root?.scrollIntoView({ block: "nearest" });
  }

  // ---- drawing

  render() {
    if (!this.view.outlined) return this.clear();
    if (!this.store.isGrowing) this.root.style.minHeight = "";
    const { rank } = this.view.layout;
    const shown = this.view.shownPaths().sort((a, b) => rank[a.id] - rank[b.id]);
    this.renderPrompt();
    const depths = this.depths();
    const step = Math.min(INDENT, MOST_INDENT / Math.max(1, ...depths.values()));
    /** @type {Element} */
    let last = this.prompt.root;
    for (const path of shown) {
      const item = this.items.get(path.id) ?? new Item("path");
      this.items.set(path.id, item);
      this.fill(item, path, depths.get(path.id) ?? 0, step);
      if (last.nextElementSibling !== item.root) last.after(item.root);
      last = item.root;
    }
    this.drop(new Set(shown.map(({ id }) => id)));
  }

  /** Remove all other paragraphs, but keep the keyboard focus. @param {Set<number>} kept */
  drop(kept) {
    for (const [id, { root }] of this.items) {
      if (kept.has(id)) continue;
      if (root.matches(":focus-within")) this.send("takeFocus");
      root.remove();
      this.items.delete(id);
    }
  }

  /** How many forks are above each path; a fork with only one drawn branch does not count. */
  depths() {
    const { rank, only } = this.view.layout;
    /** @type {Map<number, number>} */
    const depths = new Map();
    const drawn = [...this.view.branches.drawn()].sort((a, b) => rank[a.id] - rank[b.id]);
    for (const { id, parent } of drawn) {
      const under = depths.get(parent);
      depths.set(id, under === undefined ? 0 : under + (only[id] ? 0 : 1));
    }
    return depths;
  }

  renderPrompt() {
    const { prompt, store } = this;
    if (prompt.filledWith === store.run.prompt) return;
    prompt.filledWith = store.run.prompt;
    prompt.text.textContent = store.run.prompt;
    set(prompt.root, { "aria-label": `Prompt: ${store.run.prompt}`, "aria-level": 1 });
  }

  /** @param {Item} item @param {Path} path @param {number} depth @param {number} step px */
  fill(item, path, depth, step) {
    const { store, view } = this;
    const { cursor } = view;
    const status = statusAt(path, cursor);
    const count = tokenCountAt(path, cursor);
    const found = (path.joined?.all ?? [path]).some(({ id }) => view.found.has(id));
    const wording = status === "forked" && view.isWording(path);
    const classes = `${view.classOf(path.id)}${found ? " found" : ""}${wording ? " wording" : ""}`;
    set(item.root, {
      class: `outline-item path ${status}${classes}`,
      "aria-level": depth + 2,
      "data-path": path.id,
    });
    // No style attribute: the security policy of an exported page forbids it.
    item.root.style.setProperty("--indent", `${(depth * step).toFixed(1)}px`);
    const isForked = status === "forked";
    const radius = isForked ? view.ringOf(path) : 0;
    const folded = path.joined || isForked ? this.foldOf(path) : { words: "", help: "", name: "" };
    const weights = weightWords(store, path, cursor);
    const name = nameOf(path, status, textOf(path, count), weights, folded.name);
    const state = [count, path.tokens.length, view.tokenIn(path), store.whatIf, name];
    const filledWith = [...state, radius, folded.words, store.run.threshold].join();
    if (item.filledWith === filledWith) return;
    item.filledWith = filledWith;
    set(item.root, { "aria-label": name });
    item.weight.textContent = store.paths.size > 1 ? weights.join("\n") : "";
    item.mark.textContent = markOf(path, status);
    item.mark.style.setProperty("--ring", `${radius.toFixed(1)}px`);
    item.mark.classList.toggle("decides", radius > 0);
    item.fold.textContent = folded.words;
    const help = { title: folded.help, "aria-label": `${folded.words}: ${folded.help}` };
    set(item.fold, { "data-fork": path.id, ...help });
    if (folded.words) item.body.append(item.fold);
    else item.fold.remove();
    item.text.replaceChildren(...this.tokensOf(path, count));
  }

  /** @param {Path} path */
  foldOf(path) {
    const { view } = this;
    return path.joined ? joinedWords(view, path) : { ...foldedWords(view, path.id), name: "" };
  }

  /** @param {Path} path @param {number} count */
  tokensOf(path, count) {
    const { store, view } = this;
    const selected = view.tokenIn(path);
    return path.tokens.slice(0, count).map((token, index) => {
      const words = index ? token.piece : token.piece.replace(/^ (?=.)/, "");
      const level = entropyClass(token.entropy, store.run.threshold);
      const kind = `token ${level}${this.noteOf(path, index)}`;
      const chosen = index === selected ? " selected" : "";
      const place = { class: `${kind}${chosen}`, "data-token": index };
      return element("span", place, words.replace(/↵(?!↵)/g, "↵\n"));
    });
  }

  /** The class of the mark above a token. @param {Path} box @param {number} token */
  noteOf(box, token) {
    const { path, index } = placeIn(box, token);
    if (this.store.unknownAt(path.id, index)) return " unknown";
    return missedFork(this.store, path, index) ? " missed" : "";
  }
}

const PAUSE_MS = 400; // between updates while the cursor moves

const PATH_COLUMNS = [
  "path",
  "parent",
  "first step",
  "tokens",
  "weight",
  "share of its fork",
  "state",
  "KV shared",
  "KV private",
  "text",
];
const TOKEN_COLUMNS = ["path", "step", "token", "probability", "entropy", "most likely"];

export class TableView {
  /** @param {RunStore} store @param {ViewState} view */
  constructor(store, view) {
    this.store = store;
    this.view = view;
    this.root = element("div");
    this.filledAt = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.pause = undefined;
  }

  close() {
    clearTimeout(this.pause);
  }

  render() {
    if (!this.root.isConnected || this.pause !== undefined) return;
    const wait = Math.max(0, this.filledAt + PAUSE_MS - performance.now());
    this.pause = setTimeout(() => this.fill(), wait);
  }

  fill() {
    this.pause = undefined;
    this.filledAt = performance.now();
    const step = this.store.stepAt(this.view.cursor);
    const rows = new Map(step?.paths.map((record) => [record.path, record]));
    const shown = this.view.startedPaths();
    const pathLines = shown.map((path) => this.pathLine(path, rows.get(path.id)));
    const tokenLines = shown.flatMap((path) => this.tokenLines(path));
    const threshold = this.store.run.threshold.toFixed(2);
    const tokens = `Tokens up to step ${this.view.cursor} (entropy in nats; threshold ${threshold})`;
    // Two runs in one tree do not share a cache.
    const memory = this.store.sides ? [] : [element("p", { class: "sentence" }, memoryWords(step))];
    this.root.replaceChildren(
      ...memory,
      table(`Paths at step ${this.view.cursor}`, PATH_COLUMNS, pathLines),
      table(tokens, TOKEN_COLUMNS, tokenLines),
    );
  }

  /** @param {Path} path @param {PathRows | undefined} rows */
  pathLine(path, rows) {
    const { cursor } = this.view;
    const count = tokenCountAt(path, cursor);
    const status = statusAt(path, cursor);
    const end = path.finishReason === "stop" ? "ended" : "length limit";
    return [
      path.id,
      path.parent < 0 ? "prompt" : path.parent,
      path.born,
      count,
      percent(weightAt(path, cursor)),
      percent(path.share),
      status === "finished" ? end : statusWord(status),
      rows ? bytes(rows.shared) : "–",
      rows ? bytes(rows.private) : "–",
      textOf(path, count),
    ];
  }

  /** @param {Path} path */
  tokenLines(path) {
    const tokens = path.tokens.slice(0, tokenCountAt(path, this.view.cursor));
    return tokens.map(({ text, probability, entropy, candidates }, index) => [
      path.id,
      path.born + index,
      text,
      percent(probability),
      (entropy < 0 ? "not known" : entropy.toFixed(2)) +
        (index === 0 && path.parent >= 0 ? " ◆ fork" : ""),
      candidates
        .slice(0, 3)
        .map((candidate) => `“${candidate.text}” ${percent(candidate.probability)}`)
        .join("  "),
    ]);
  }
}

/** @param {Step | undefined} step */
function memoryWords(step) {
  if (!step) return "No KV cache yet.";
  const states = step.paths.reduce((sum, { state }) => sum + state, 0);
  const ofIt = states ? ` (${bytes(states)} of it states)` : "";
  const parts = [
    `${bytes(step.shared)} shared`,
    `${bytes(step.private)} private${ofIt}`,
    `${bytes(step.spare)} reserved`,
  ].join(", ");
  return `KV cache at step ${step.step}: ${parts}; separate caches: ${bytes(step.independent)}.`;
}

/** @param {string} caption @param {string[]} columns @param {(string | number)[][]} lines */
export function table(caption, columns, lines) {
  const names = columns.map((name) => element("th", { scope: "col" }, name));
  const head = element("thead", {}, element("tr", {}, ...names));
  const body = element("tbody", {}, ...lines.map(tableRow));
  const title = element("caption", {}, caption);
  const region = { class: "table-box", role: "region", "aria-label": caption };
  return element("div", region, element("table", {}, title, head, body));
}

/** @param {(string | number)[]} cells */
function tableRow([name, ...cells]) {
  const first = element("th", { scope: "row" }, String(name));
  return element("tr", {}, first, ...cells.map((cell) => element("td", {}, String(cell))));
}
