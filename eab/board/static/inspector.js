// What the chosen token was drawn from, why its path forked there or did not, who reads its KV row, and how to go on
// from it: a token can be forced where the host makes runs (`board.grow`).

import { element, bytes, percent } from "./svg.js";
import { button } from "./controls.js";

const COPIES = { "deep-copy": "Each path holds a copy of its own", recompute: "This cache keeps no rows" };

export class Inspector {
  constructor(board) {
    this.board = board;
    this.root = element("section", { class: "inspector", "aria-label": "Chosen token" });
    this.hint = element("p", { class: "hint" });
    this.facts = element("dl");
    this.list = element("ol", { class: "candidates", "aria-label": "Most likely tokens" });
    this.whyLine = element("p", { class: "why" });
    this.growBar = element("p", { class: "grow" });
  }

  render() {
    const { path, token } = this.board.selected;
    const record = path === null ? null : this.board.paths.get(path);
    const chosen = record?.tokens[token];
    if (!chosen) return this.renderHint();
    const shown = [this.board.run, path, token, chosen[5], Boolean(this.board.grow)].join(); // messages replace records
    if (this.shown !== shown || this.list.parentNode === null) {
      this.shown = shown;
      this.forced = chosen[5];
      this.root.replaceChildren(this.facts, this.list, this.whyLine, this.growBar);
      this.renderCandidates(record, token, chosen);
    }
    this.renderFacts(record, token, chosen);
    this.whyLine.textContent = `${this.board.markAt(path, token)} ${this.why(record, token, chosen)} ${this.row(record, token)}`.trim();
    this.renderGrow(record, token, chosen);
  }

  renderHint() {
    this.shown = null;
    const moves = this.board.lastStep > 0 ? "Press Space to play. " : "";
    this.hint.textContent = `${moves}Click a token in the tree (or press ↑ ↓) to see what the model considered there.`;
    if (this.hint.parentNode === null) this.root.replaceChildren(this.hint);
  }

  renderFacts(record, token, [, text, probability, entropy]) {
    const facts = {
      token: text || "(part of a character)",
      probability: percent(probability),
      entropy: `${entropy.toFixed(2)} nats, like ${Math.exp(entropy).toFixed(1)} equal choices`,
      step: String(record.born + token),
      path: `${record.id}, weight ${percent(this.board.weightAt(record))} at step ${this.board.cursor}`,
    };
    const parts = Object.entries(facts).flatMap(([name, value]) => [element("dt", {}, name), element("dd", { class: name === "token" ? "mono" : "" }, value)]);
    this.facts.replaceChildren(...parts);
  }

  renderCandidates(record, token, [, , , , candidates, taken]) {
    this.list.replaceChildren(...candidates.map(([text, share], index) => this.candidate(text, share, index, index === taken)));
  }

  candidate(text, share, index, taken) {
    const item = element("li", { class: taken ? "taken" : "" });
    const bar = element("span", { class: "bar" });
    bar.style.width = `${Math.max(1, share * 100).toFixed(1)}%`;
    const track = element("span", { class: "track" });
    track.append(bar);
    item.append(this.name(text, index), track, element("span", { class: "number" }, percent(share)));
    return item;
  }

  name(text, index) {
    if (!this.board.grow) return element("span", { class: "mono candidate" }, text);
    const choose = button(text, `Force “${text}”`, () => {
      this.forced = index;
      this.render();
    });
    choose.classList.add("mono", "candidate");
    return choose;
  }

  // ---- sentences

  why(record, token, [, , , entropy]) {
    const { board } = this;
    const threshold = board.threshold.toFixed(2);
    const at = `Entropy ${entropy.toFixed(2)}`;
    if (token === 0 && record.parent >= 0) return this.whyForked(record, at, threshold);
    if (entropy < board.threshold) return `No fork: entropy ${entropy.toFixed(2)} is below the threshold ${threshold}.`;
    const reached = `${at} reached the threshold ${threshold}`;
    if (record.limited.includes(record.born + token)) return `${reached}, but the path limit left room for one child only.`;
    if (board.policy === "fair" && board.minForkWeight > 0) return `${reached}, but the path was lighter than ${percent(board.minForkWeight)} then, so it did not fork.`;
    return `${reached}, but the policy (${board.policy}) made no second child here.`;
  }

  whyForked(record, at, threshold) {
    const siblings = [...this.board.paths.values()].filter((path) => path.parent === record.parent);
    return `${at} reached the threshold ${threshold}, so path ${record.parent} forked into ${siblings.length} here.${this.role(record)}`;
  }

  // What a child stands for: under `fair` the last one is drawn from all tokens but the most likely.
  role(record) {
    if (this.board.policy !== "fair") return "";
    const taken = record.tokens[0][5];
    const most = this.board.branchFactor - 1;
    const part = ` This branch began with ${percent(record.share)} of the fork's weight.`;
    return taken >= 0 && taken < most ? part : `${part} It was drawn from the tokens below the ${most} most likely and stands for all of them.`;
  }

  row(record, token) {
    const { board } = this;
    const size = bytes(board.rowBytes);
    if (COPIES[board.cache]) return `${COPIES[board.cache]} (${size} a row).`;
    if (board.cursor <= record.born + token) return `Its KV row (${size}) is written in the next step.`;
    const readers = (board.stepAt(board.cursor)?.paths ?? []).map(([path]) => path).filter((path) => board.records.lineageOf(path).has(record.id));
    if (!readers.length) return `At step ${board.cursor} no live path reads its KV row (${size}): its place is free for another.`;
    if (readers.length === 1) return `Its KV row (${size}) is private to path ${readers[0]} at step ${board.cursor}.`;
    return `Its KV row (${size}) is stored once and shared by ${readers.length} paths at step ${board.cursor}: ${readers.join(", ")}.`;
  }

  // ---- growing

  renderGrow(record, token, [, text, , , candidates]) {
    this.growBar.hidden = !this.board.grow;
    if (!this.board.grow) return;
    this.list.querySelectorAll("button").forEach((choose, index) => choose.setAttribute("aria-pressed", index === this.forced));
    const words = `Grow from here with “${this.forced >= 0 ? candidates[this.forced][0] : text}”`;
    if (!this.growButton) {
      this.growButton = button("", "", () => this.growFrom());
      this.growBar.append(this.growButton, element("span", {}, "A new run with the settings on the left: the text up to this token, and on from it. Choose another token above to force it."));
    }
    this.growButton.textContent = words;
    this.growButton.title = "Start a new run from this token";
    this.growButton.setAttribute("aria-label", words);
  }

  growFrom() {
    const { path, token } = this.board.selected;
    this.board.grow?.({ run: this.board.run, path, token, candidate: this.forced });
  }
}
