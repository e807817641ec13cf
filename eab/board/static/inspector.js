// What the model considered at a token, and why the path forked there or not: as a tooltip for the
// token under the pointer, and in the drawer for the selected one, with its text.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Send, Token } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { weightWords } from "./box_marks.js";
import { button, element, wordButton } from "./elements.js";
import { effectWords, forkReason, forkWords } from "./fork_reasons.js";
import { bytes, natsOf, percent } from "./formatting.js";
import { markNames, signOf } from "./labels.js";
import { lineOf, statusAt, tokenCountAt, weightAt } from "./paths.js";

/**
 * The most likely tokens at a place, each with a bar for its probability.
 * @param {Token} token
 * @param {(text: string, index: number) => Element} nameOf makes a candidate's text
 * @param {number} [most]
 */
function candidateBars(token, nameOf, most = token.candidates.length) {
  return token.candidates.slice(0, most).map(({ text, probability }, index) => {
    const item = element("li", { class: index === token.taken ? "taken" : "" });
    const bar = element("span", { class: "bar" });
    bar.style.width = `${Math.max(1, probability * 100).toFixed(1)}%`;
    const track = element("span", { class: "track" }, bar);
    const number = element("span", { class: "number" }, percent(probability));
    item.append(nameOf(text, index), track, number);
    return item;
  });
}

/** @param {string} text */
function plainName(text) {
  return element("span", { class: "mono candidate" }, text);
}

const GAP = 14; // px between the pointer and the words
const MOST = 5; // candidates

/** Words beside the pointer. */
export class Tooltip {
  constructor() {
    this.root = element("div", { class: "tooltip", hidden: "", "aria-hidden": "true" });
  }

  hide() {
    this.root.hidden = true;
  }

  /** @param {MouseEvent} event @param {Element[]} content */
  show(event, content) {
    this.root.hidden = false;
    this.root.replaceChildren(...content);
    const frame = /** @type {Element} */ (this.root.parentElement).getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.root;
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const left = Math.max(4, Math.min(x + GAP, frame.width - offsetWidth - 4));
    const fitsBelow = event.clientY + GAP + offsetHeight < innerHeight;
    const top = fitsBelow ? y + GAP : y - GAP - offsetHeight;
    this.root.style.transform = `translate(${left.toFixed(0)}px, ${top.toFixed(0)}px)`;
  }
}

/** @param {RunStore} store @param {Path} path @param {number} index */
export function tokenTip(store, path, index) {
  const token = path.tokens[index];
  const head = `“${token.text}”  p ${percent(token.probability)}  entropy ${natsOf(token)}`;
  const list = element("ol", { class: "candidates" }, ...candidateBars(token, plainName, MOST));
  const reason = store.unknownAt(path.id, index) || forkWords(store, path, index);
  return [element("p", { class: "tip-head" }, head), list, element("p", {}, reason)];
}

/**
 * The text that contains the selected token, from the prompt to its end, with its forks; and buttons
 * for the texts above and below.
 */
class Reading {
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

/** @type {Record<string, string>} What the caches that share no rows do. */
const WITHOUT_SHARING = {
  own: "Each path holds a copy of the model's own memory",
  "deep-copy": "Each path holds a copy of its own",
  recompute: "This cache keeps no rows",
};

const GROW_HELP =
  "A new run with the current settings: it keeps the text up to this token and goes on from it. " +
  "To force another token, choose it above.";

/**
 * The selected token: which distribution it was drawn from, why its path forked there or not, and
 * which paths read its KV row. If the host makes runs (`offers.grow`), a new run can grow from the
 * token, or from another token in its place.
 */
export class Inspector {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    this.root = element("section", { class: "inspector", "aria-label": "Selected token" });
    this.reading = new Reading(store, view, send);
    this.facts = element("dl");
    this.list = element("ol", { class: "candidates", "aria-label": "Most likely tokens" });
    this.explanation = element("p", { class: "why" });
    this.growButton = button("", "Start a new run from this token", "", () => this.grow());
    this.existing = button("", "Select its first token", "", () => this.goToExisting());
    const help = element("span", {}, GROW_HELP);
    this.growBar = element("p", { class: "grow" }, this.growButton, this.existing, help);
    const why = "leave this path and all that grew from it out of the tree (x)";
    const hide = wordButton("Hide this branch", why, () => send("hideBranch"));
    this.hideBar = element("p", { class: "grow" }, hide);
    this.labelBar = element("p", { class: "grow" });
    this.forced = -1; // index of the candidate to force
    this.shown = ""; // identifies the token whose candidates are listed
  }

  render() {
    const { path: id, token: index } = this.view.selection;
    const path = id === null ? undefined : this.store.paths.get(id);
    const token = path?.tokens[index];
    if (!path || !token) {
      this.shown = "";
      return this.root.replaceChildren();
    }
    const canGrow = Boolean(this.store.offers.grow);
    const shown = [this.store.run.key, id, index, token.taken, canGrow].join();
    if (this.shown !== shown) {
      this.shown = shown;
      this.forced = token.taken;
      const grow = canGrow ? [this.growBar] : [];
      const hide = path.parent >= 0 ? [this.hideBar] : [];
      const { reading, facts, list, explanation } = this;
      const parts = [reading.root, facts, list, explanation, ...grow, this.labelBar, ...hide];
      this.root.replaceChildren(...parts);
      this.list.replaceChildren(...candidateBars(token, (...one) => this.candidate(...one)));
    }
    this.reading.render();
    this.renderFacts(path, index, token);
    const unknown = this.store.unknownAt(path.id, index);
    const sentences = {
      forks: `${unknown} ${forkReason(this.store, path, index)}`.trim(),
      answers: effectWords(this.store, path, index),
      rows: this.row(path, index),
    };
    const said = Object.entries(sentences).filter(([, words]) => words);
    const parts = said.map(([topic, words]) => element("span", { class: `of-${topic}` }, words));
    this.explanation.replaceChildren(...parts.flatMap((part) => [" ", part]).slice(1));
    this.renderGrow(path, index, token);
    this.renderMarks();
  }

  /** The buttons that label all that follows the token. */
  renderMarks() {
    this.labelBar.hidden = !this.store.offers.label;
    const names = markNames(this.store).map((name, place) => `${signOf(place)} ${name}`);
    if (this.labelBar.textContent === names.join("")) return;
    const buttons = names.map((name, place) =>
      wordButton(name, `label all texts that go on from here (${place + 1})`, () =>
        this.send("mark", place),
      ),
    );
    this.labelBar.replaceChildren(...buttons);
  }

  /** @param {Path} path @param {number} index @param {Token} token */
  renderFacts(path, index, token) {
    const { cursor } = this.view;
    const choices = `, like ${Math.exp(token.entropy).toFixed(1)} equally likely choices`;
    const facts = {
      token: token.text || "(part of a character)",
      probability: percent(token.probability),
      entropy: natsOf(token) + (token.entropy < 0 ? "" : choices),
      step: String(path.born + index),
      path: `${path.id}, weight ${percent(weightAt(path, cursor))} at step ${cursor}`,
    };
    const parts = Object.entries(facts).flatMap(([name, value]) => [
      element("dt", { class: `of-${name}` }, name),
      element("dd", { class: name === "token" ? "mono" : `of-${name}` }, value),
    ]);
    this.facts.replaceChildren(...parts);
  }

  /** @param {string} text @param {number} index */
  candidate(text, index) {
    if (!this.store.offers.grow) return plainName(text);
    const help = `Force “${text}”`;
    const choice = button(text, help, help, () => {
      this.forced = index;
      this.render();
    });
    choice.classList.add("mono", "candidate");
    return choice;
  }

  // ---- sentences

  /** The token's KV row and the paths that read it. @param {Path} path @param {number} index */
  row(path, index) {
    const { cursor } = this.view;
    const { run } = this.store;
    const size = bytes(run.row_bytes);
    const without = WITHOUT_SHARING[run.cache];
    if (without) return run.row_bytes ? `${without} (${size} per row).` : `${without}.`;
    if (cursor <= path.born + index) return `Its KV row (${size}) is written in the next step.`;
    const live = (this.store.stepAt(cursor)?.paths ?? []).map((rows) => rows.path);
    const readers = live.filter((reader) => this.store.lineageOf(reader).has(path.id));
    const at = `at step ${cursor}`;
    if (!readers.length) return `No live path reads its KV row (${size}) ${at}: the row is free.`;
    if (readers.length === 1) return `Its KV row (${size}) is private to path ${readers[0]} ${at}.`;
    const paths = `${readers.length} paths ${at}: ${readers.join(", ")}`;
    return `Its KV row (${size}) is stored once and shared by ${paths}.`;
  }

  // ---- growing

  /** @param {Path} path @param {number} index @param {Token} token */
  renderGrow(path, index, token) {
    if (!this.store.offers.grow) return;
    this.list.querySelectorAll("button").forEach((choice, index) => {
      choice.setAttribute("aria-pressed", String(index === this.forced));
    });
    // Nothing can follow a text's last token, but another token can replace it.
    const isEnd = index === path.tokens.length - 1 && this.forced === token.taken;
    this.growButton.disabled = isEnd && path.finishReason === "stop";
    const next = token.candidates[this.forced]?.text ?? token.text;
    const isCut = isEnd && path.finishReason === "length";
    const words = isCut ? "Continue this text" : `Grow from here with “${next}”`;
    this.growButton.textContent = words;
    this.growButton.setAttribute("aria-label", words);
    const branch = this.existingBranch();
    this.existing.hidden = branch === undefined;
    const there = branch ? `Path ${branch.id} begins with it already: go there` : "";
    this.existing.textContent = there;
    this.existing.setAttribute("aria-label", there);
  }

  /** The branch at this fork that starts with the token to force, if there is one. */
  existingBranch() {
    const path = this.store.paths.get(this.view.selection.path ?? -1);
    const token = path?.tokens[this.view.selection.token];
    if (!path || !token || this.view.selection.token !== 0 || this.forced === token.taken)
      return undefined;
    const text = token.candidates[this.forced]?.text;
    return this.store.childrenOf(path.parent).find(({ tokens }) => tokens[0]?.text === text);
  }

  goToExisting() {
    const branch = this.existingBranch();
    if (branch) this.send("reveal", { path: branch.id, token: 0 });
  }

  grow() {
    const { key } = this.store.run;
    const { path, token } = this.view.selection;
    if (key === null || path === null) return;
    this.send("grow", { run: key, path, token, candidate: this.forced });
  }
}
