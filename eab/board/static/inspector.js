// The selected token: what it was drawn from, why its path forked there or did not, and which paths
// read its KV row. Where the host makes runs (`board.onGrow`), a new run can grow from it, with
// another token in its place if the user wants.

/** @import { Board } from "./board.js" */
/** @import { Path, Token } from "./types.d.ts" */
import { button } from "./buttons.js";
import { element } from "./elements.js";
import { bytes, percent } from "./format.js";
import { weightAt } from "./path_state.js";

const SELECT_HINT =
  "Click a token in the tree (or press ↑ ↓) to see what the model considered there.";

/** @type {Record<string, string>} What the caches that share no rows do. */
const WITHOUT_SHARING = {
  "deep-copy": "Each path holds a copy of its own",
  recompute: "This cache keeps no rows",
};

const GROW_HELP =
  "A new run with the current settings: it keeps the text up to this token and goes on from it. " +
  "To force another token, choose it above.";

export class Inspector {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.root = element("section", { class: "inspector", "aria-label": "Selected token" });
    this.hint = element("p", { class: "hint" });
    this.facts = element("dl");
    this.list = element("ol", { class: "candidates", "aria-label": "Most likely tokens" });
    this.explanation = element("p", { class: "why" });
    this.growButton = button("", "Start a new run from this token", "", () => this.grow());
    this.growBar = element("p", { class: "grow" });
    this.growBar.append(this.growButton, element("span", {}, GROW_HELP));
    this.forced = -1; // index of the candidate to force
    this.shown = ""; // names the token that the list of candidates is of
  }

  render() {
    const { path: id, token: index } = this.board.selected;
    const path = id === null ? undefined : this.board.paths.get(id);
    const token = path?.tokens[index];
    if (!path || !token) return this.renderHint();
    const canGrow = this.board.onGrow !== null;
    const shown = [this.board.run.key, id, index, token.taken, canGrow].join();
    if (this.shown !== shown) {
      this.shown = shown;
      this.forced = token.taken;
      const grow = canGrow ? [this.growBar] : [];
      this.root.replaceChildren(this.facts, this.list, this.explanation, ...grow);
      this.renderCandidates(token);
    }
    this.renderFacts(path, index, token);
    const sentences = [this.board.unknownAt(path.id, index), this.why(path, index, token)];
    this.explanation.textContent = [...sentences, this.row(path, index)].join(" ").trim();
    this.renderGrow(token);
  }

  renderHint() {
    this.shown = "";
    const play = this.board.lastStep > 0 ? "Press Space to play. " : "";
    this.hint.textContent = `${play}${SELECT_HINT}`;
    if (this.hint.parentNode === null) this.root.replaceChildren(this.hint);
  }

  /**
   * @param {Path} path
   * @param {number} index
   * @param {Token} token
   */
  renderFacts(path, index, token) {
    const { cursor } = this.board;
    const choices = Math.exp(token.entropy).toFixed(1);
    const facts = {
      token: token.text || "(part of a character)",
      probability: percent(token.probability),
      entropy: `${token.entropy.toFixed(2)} nats, like ${choices} equally likely choices`,
      step: String(path.born + index),
      path: `${path.id}, weight ${percent(weightAt(path, cursor))} at step ${cursor}`,
    };
    const parts = Object.entries(facts).flatMap(([name, value]) => [
      element("dt", {}, name),
      element("dd", { class: name === "token" ? "mono" : "" }, value),
    ]);
    this.facts.replaceChildren(...parts);
  }

  /** @param {Token} token */
  renderCandidates(token) {
    const items = token.candidates.map(({ text, probability }, index) => {
      const item = element("li", { class: index === token.taken ? "taken" : "" });
      const bar = element("span", { class: "bar" });
      bar.style.width = `${Math.max(1, probability * 100).toFixed(1)}%`;
      const track = element("span", { class: "track" });
      track.append(bar);
      const number = element("span", { class: "number" }, percent(probability));
      item.append(this.candidate(text, index), track, number);
      return item;
    });
    this.list.replaceChildren(...items);
  }

  /**
   * @param {string} text
   * @param {number} index
   */
  candidate(text, index) {
    if (!this.board.onGrow) return element("span", { class: "mono candidate" }, text);
    const help = `Force “${text}”`;
    const choice = button(text, help, help, () => {
      this.forced = index;
      this.render();
    });
    choice.classList.add("mono", "candidate");
    return choice;
  }

  // ---- sentences

  /**
   * Why the path forked at the token, or did not.
   * @param {Path} path
   * @param {number} index
   * @param {Token} token
   */
  why(path, index, token) {
    const { run } = this.board;
    const entropy = token.entropy.toFixed(2);
    const threshold = run.threshold.toFixed(2);
    const reached = `Entropy ${entropy} reached the threshold ${threshold}`;
    if (index === 0 && path.parent >= 0) return this.whyForked(path, token, reached);
    if (token.entropy < run.threshold) {
      return `No fork: entropy ${entropy} is below the threshold ${threshold}.`;
    }
    if (path.limitedSteps.includes(path.born + index)) {
      return `${reached}, but the path limit left room for only one child.`;
    }
    if (run.policy === "fair" && run.minForkWeight > 0) {
      const least = percent(run.minForkWeight);
      return `${reached}, but the path weighed less than ${least} then, so it did not fork.`;
    }
    return `${reached}, but the policy (${run.policy}) made no second child here.`;
  }

  /**
   * @param {Path} path
   * @param {Token} token
   * @param {string} reached
   */
  whyForked(path, token, reached) {
    const siblings = this.board.records.childrenOf(path.parent).length;
    const forked = `${reached}, so path ${path.parent} forked into ${siblings} here.`;
    return `${forked}${this.branchWeight(path, token)}`;
  }

  /**
   * What a child stands for: under `fair` the last child is drawn from all less likely tokens.
   * @param {Path} path
   * @param {Token} token
   */
  branchWeight(path, token) {
    const { run } = this.board;
    if (run.policy !== "fair") return "";
    const most = run.branchFactor - 1;
    const words = ` At the fork this branch received ${percent(path.share)} of the weight.`;
    if (token.taken >= 0 && token.taken < most) return words;
    const drawn = `It was drawn from the tokens below the ${most} most likely`;
    return `${words} ${drawn} and stands for all of them.`;
  }

  /**
   * Where the token's KV row is, and who reads it.
   * @param {Path} path
   * @param {number} index
   */
  row(path, index) {
    const { cursor, records, run } = this.board;
    const size = bytes(run.rowBytes);
    const without = WITHOUT_SHARING[run.cache];
    if (without) return `${without} (${size} per row).`;
    if (cursor <= path.born + index) return `Its KV row (${size}) is written in the next step.`;
    const live = (records.stepAt(cursor)?.paths ?? []).map((rows) => rows.path);
    const readers = live.filter((reader) => records.lineageOf(reader).has(path.id));
    const at = `at step ${cursor}`;
    if (!readers.length) return `No live path reads its KV row (${size}) ${at}: the row is free.`;
    if (readers.length === 1) return `Its KV row (${size}) is private to path ${readers[0]} ${at}.`;
    const paths = `${readers.length} paths ${at}: ${readers.join(", ")}`;
    return `Its KV row (${size}) is stored once and shared by ${paths}.`;
  }

  // ---- growing

  /** @param {Token} token */
  renderGrow(token) {
    if (!this.board.onGrow) return;
    this.list.querySelectorAll("button").forEach((choice, index) => {
      choice.setAttribute("aria-pressed", String(index === this.forced));
    });
    const words = `Grow from here with “${token.candidates[this.forced]?.text ?? token.text}”`;
    this.growButton.textContent = words;
    this.growButton.setAttribute("aria-label", words);
  }

  grow() {
    const { run, selected } = this.board;
    if (run.key === null || selected.path === null) return;
    const { path, token } = selected;
    this.board.onGrow?.({ run: run.key, path, token, candidate: this.forced });
  }
}
