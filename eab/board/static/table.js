// What the pictures show, as tables: for readers who cannot see them, and for those who want the numbers.

import { element, bytes, percent } from "./svg.js";

const PAUSE_MS = 400; // between two fillings while the cursor moves

export class TableView {
  constructor(board) {
    this.board = board;
    this.root = element("section", { class: "panel table-panel", "aria-label": "The pictures as tables", hidden: "" });
  }

  toggle() {
    this.root.hidden = !this.root.hidden;
    this.filledAt = 0;
    this.render();
    if (!this.root.hidden) this.root.scrollIntoView({ block: "nearest" });
  }

  render() {
    if (this.root.hidden || this.waiting) return;
    const wait = Math.max(0, (this.filledAt || 0) + PAUSE_MS - performance.now());
    this.waiting = setTimeout(() => this.fill(), wait);
  }

  fill() {
    this.waiting = null;
    this.filledAt = performance.now();
    const { board } = this;
    const step = board.stepAt(board.cursor);
    const rows = new Map((step?.paths ?? []).map(([path, shared, own]) => [path, [bytes(shared), bytes(own)]]));
    const shown = board.shownPaths();
    const kv = step ? `KV cache at step ${step.step}: ${bytes(step.shared)} shared, ${bytes(step.private)} private, ${bytes(step.spare)} spare; without sharing ${bytes(step.independent)}.` : "No KV cache yet.";
    this.root.replaceChildren(
      element("p", { class: "sentence" }, kv),
      table(`Paths at step ${board.cursor}`, ["path", "grew from", "from step", "tokens", "weight", "share of its fork", "state", "KV shared", "KV private", "text"], shown.map((path) => this.pathLine(path, rows.get(path.id)))),
      table(`Tokens up to step ${board.cursor} (entropy in nats; forks from ${board.threshold.toFixed(2)})`, ["path", "step", "token", "probability", "entropy", "most likely"], shown.flatMap((path) => this.tokenLines(path))),
    );
  }

  pathLine(path, kv) {
    const { board } = this;
    const count = board.tokensShown(path);
    const text = path.tokens.slice(0, count).map((token) => token[0]).join("");
    const state = board.statusAt(path);
    const ended = state === "finished" ? (path.reason === "stop" ? "ended by itself" : "cut at the length limit") : state;
    return [path.id, path.parent < 0 ? "prompt" : path.parent, path.born, count, percent(board.weightAt(path)), percent(path.share), ended, ...(kv ?? ["–", "–"]), text];
  }

  tokenLines(path) {
    const forked = path.parent >= 0 ? " ◆ fork" : "";
    return path.tokens.slice(0, this.board.tokensShown(path)).map(([, alone, probability, entropy, candidates], index) => [
      path.id, path.born + index, alone, percent(probability), entropy.toFixed(2) + (index ? "" : forked),
      candidates.slice(0, 3).map(([text, share]) => `“${text}” ${percent(share)}`).join("  "),
    ]);
  }
}

function table(caption, columns, lines) {
  const made = element("table");
  const head = element("tr");
  head.append(...columns.map((name) => element("th", { scope: "col" }, name)));
  const [top, body] = [element("thead"), element("tbody")];
  top.append(head);
  for (const cells of lines) {
    const row = element("tr");
    row.append(...cells.map((cell, index) => element(index ? "td" : "th", index ? {} : { scope: "row" }, String(cell))));
    body.append(row);
  }
  made.append(element("caption", {}, caption), top, body);
  const box = element("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": caption });
  box.append(made);
  return box;
}
