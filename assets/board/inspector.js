// What the chosen token was drawn from, and why its path forked there or did not.

import { element, percent } from "./svg.js";

export class Inspector {
  constructor(board) {
    this.board = board;
    this.root = element("section", { class: "inspector", "aria-label": "Chosen token" });
  }

  render() {
    const { path, token } = this.board.selected;
    const record = path === null ? null : this.board.paths.get(path);
    if (!record || !record.tokens[token]) {
      this.root.replaceChildren(element("p", { class: "hint" }, "Click a token in the tree (or press Enter) to see what the model considered there."));
      return;
    }
    const [, text, probability, entropy, candidates] = record.tokens[token];
    const facts = element("dl");
    this.fact(facts, "token", text || "(part of a character)", "mono");
    this.fact(facts, "probability", percent(probability));
    this.fact(facts, "entropy", `${entropy.toFixed(2)} nats`);
    this.fact(facts, "live options", Math.exp(entropy).toFixed(1));
    this.fact(facts, "step", String(record.born + token));
    this.fact(facts, "path", `${path}, weight ${percent(record.weight)}`);
    const list = element("ol", { class: "candidates", "aria-label": "Most likely tokens" });
    for (const [candidate, share] of candidates) list.append(this.candidate(candidate, share, candidate === text));
    this.root.replaceChildren(facts, list, element("p", { class: "why" }, `${this.board.markAt(path, token)} ${this.why(record, token, entropy)}`.trim()));
  }

  fact(list, name, value, kind = "") {
    list.append(element("dt", {}, name), element("dd", { class: kind }, value));
  }

  candidate(text, share, taken) {
    const item = element("li", { class: taken ? "taken" : "" });
    const bar = element("span", { class: "bar" });
    bar.style.width = `${Math.max(1, share * 100).toFixed(1)}%`;
    const track = element("span", { class: "track" });
    track.append(bar);
    item.append(element("span", { class: "mono candidate" }, text), track, element("span", { class: "number" }, percent(share)));
    return item;
  }

  why(record, token, entropy) {
    const threshold = this.board.threshold.toFixed(2);
    const reached = `Entropy ${entropy.toFixed(2)} reached the threshold ${threshold}`;
    if (token === 0 && record.parent >= 0) return `Forked here: entropy ${entropy.toFixed(2)} is at or above the threshold ${threshold}.${this.role(record)}`;
    if (entropy < this.board.threshold) return `No fork: entropy ${entropy.toFixed(2)} is below the threshold ${threshold}.`;
    if (record.limited.includes(record.born + token)) return `${reached}, but the path limit left room for one child only.`;
    if (this.board.policy === "fair" && this.board.minForkWeight > 0) return `${reached}, but the path was lighter than ${percent(this.board.minForkWeight)} then, so it did not fork.`;
    return `${reached}, but the policy (${this.board.policy}) made no second child here.`;
  }

  // What a child stands for: under `fair` the last one is drawn from all tokens but the most likely.
  role(record) {
    if (this.board.policy !== "fair") return "";
    const [, text, , , candidates] = record.tokens[0];
    const head = candidates.slice(0, this.board.branchFactor - 1).some(([candidate]) => candidate === text);
    const part = ` This branch began with ${percent(record.share)} of the fork's weight.`;
    return head ? part : `${part} It was drawn from the tokens below the ${this.board.branchFactor - 1} most likely and stands for all of them.`;
  }
}
