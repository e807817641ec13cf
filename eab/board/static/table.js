// The charts as tables, for people who cannot see them or who want the numbers.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, PathRows, Step } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { statusWord } from "./box_marks.js";
import { element } from "./elements.js";
import { statusAt, textOf, tokenCountAt, weightAt } from "./paths.js";
import { bytes, percent } from "./text.js";

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
