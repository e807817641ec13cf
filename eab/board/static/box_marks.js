// What a box shows about its path besides the text: in words, as a mark for what is not drawn, and
// as the entropy of each token.

/** @import { PathBox } from "./path_box.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Status, Token } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { diamond, set, shape } from "./elements.js";
import { hasMissed, missedFork } from "./fork_reasons.js";
import { percent } from "./formatting.js";
import { labelAt, signOf } from "./labels.js";
import { BOX, LINE } from "./layout.js";
import { placeIn, textProbability, textsAt, weightAt } from "./paths.js";

const LEAST_NAMED = 0.005; // weight

/**
 * The CSS class of an entropy: how unsure the model was.
 * @param {number} entropy negative: not measured
 * @param {number} threshold
 */
export function entropyClass(entropy, threshold) {
  if (entropy < 0) return "unmeasured";
  if (entropy >= threshold) return "unsure";
  return entropy >= threshold / 2 ? "fairly-sure" : "sure";
}

/** What the status is called. @param {Status} status */
export function statusWord(status) {
  return status === "pruned" ? "dropped" : status;
}

/** The sign after the text. @param {Path} path @param {Status} status */
export function markOf({ finishReason }, status) {
  const end = finishReason === "stop" ? "■" : "→";
  return { forked: "◆", finished: end, pruned: "×", live: "", given: "?" }[status];
}

/**
 * The weight of a path, with the sign of its label; for two runs, in each run that contains it.
 * @param {RunStore} store @param {Path} path @param {number} step
 * @returns {string[]} one or two
 */
export function weightWords(store, path, step) {
  const { isGraft, sides, weightsInB } = store;
  const isGiven = path.status === "given";
  const own = percent(isGiven ? textProbability(store, path) : weightAt(path, step));
  if (!sides || isGraft) return [`${signOf(labelAt(store, path, step))} ${own}`.trim()];
  const side = sides[path.id];
  if (side !== "both") return [`${side.toUpperCase()} ${own}`];
  return [`A ${own}`, `B ${percent(weightsInB[path.id] ?? 0)}`];
}

/**
 * The name of a box for screen readers.
 * @param {Path} path @param {Status} status @param {string} text
 * @param {string[]} weights in words
 * @param {string} texts that it stands for, in words; "" if only one
 */
export function nameOf(path, status, text, weights, texts) {
  const name = texts || `path ${path.id}`;
  return `${name}, ${statusWord(status)}, weight ${weights.join(", ")}: ${text}`;
}

/**
 * Describes the texts that are not drawn after a fork.
 * @param {ViewState} view
 * @param {number} fork path that forks
 * @returns {{ words: string, help: string }} empty words if all is drawn
 */
export function foldedWords(view, fork) {
  const { count, weight } = view.branches.foldedAt(fork);
  const words = `${count} more${weight >= LEAST_NAMED ? `, ${percent(weight)}` : ""}`;
  const noun = count === 1 ? "text" : "texts";
  const help = `${count} more ${noun}: dropped, of small weight, or without room. Click to see.`;
  return count ? { words, help } : { words: "", help: "" };
}

/**
 * Describes the texts that a box of several texts stands for.
 * @param {ViewState} view @param {Path} box
 * @returns {{ words: string, help: string, name: string }} empty while it is one text
 */
export function joinedWords(view, box) {
  const count = textsAt(box, view.cursor).length;
  if (count <= 1) return { words: "", help: "", name: "" };
  const name = `${count} texts with the answer “${box.joined?.answer}”`;
  return { words: `${count} texts`, help: `${name}. Click to see.`, name };
}

/**
 * The mark for what is not drawn: the number of small branches after a fork, or of texts with the
 * same answer after a box. A click draws them.
 */
export class FoldMark {
  /**
   * @param {ViewState} view
   * @param {number} fork path that forks
   */
  constructor(view, fork) {
    this.view = view;
    this.fork = fork;
    this.words = document.createTextNode("");
    this.help = shape("title");
    this.node = shape("text", { class: "fold", "data-fork": fork }, this.words, this.help);
  }

  /**
   * Put it under the end of the box that forks, or after a box without drawn branches.
   * @param {number | null} right edge of the box; null if it has not forked
   * @param {number} bottom edge of the box
   * @param {boolean} isEnd whether no branches are drawn after the box
   */
  place(right, bottom, isEnd) {
    const { words, help } = foldedWords(this.view, this.fork);
    this.words.data = right === null ? "" : words;
    this.help.textContent = help;
    const end = right ?? 0;
    if (isEnd) set(this.node, { x: end + 16, y: 4, "text-anchor": "start" });
    else set(this.node, { x: end, y: bottom + 13, "text-anchor": "end" });
  }

  /**
   * @param {Path} box of several texts
   * @param {number} x
   * @returns {string} what the box stands for; "" if it is one text
   */
  count(box, x) {
    const { words, help, name } = joinedWords(this.view, box);
    this.words.data = words;
    this.help.textContent = help;
    set(this.node, { x, y: 10, "text-anchor": "start" });
    return name;
  }
}

const TICK = 3.5; // px, its height
const NARROWEST = 2; // px; narrower tokens share a tick
const CROWDED = 5; // px between two circles
const CIRCLE = "a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0Z";
const UNKNOWN = 4.5; // px, half the width of its diamond

/**
 * The entropy of each token of a box, as a colour below the token. A mark above the token shows that
 * the model was unsure and the path did not fork, or that only a run could tell. There is one shape
 * per colour, because a large tree has thousands of tokens.
 */
export class Strip {
  /** @param {PathBox} box */
  constructor(box) {
    this.box = box;
    this.node = shape("g", { class: "strip" });
    /** The shapes, by their class. @type {Map<string, SVGPathElement>} */
    this.shapes = new Map();
  }

  /**
   * @param {Path} path
   * @param {number} selected index of a token, or -1
   */
  render(path, selected) {
    const drawn = [...this.ticks(path, selected), ...this.marks(path)];
    const nodes = drawn.map(([name, d]) => {
      const node = this.shapes.get(name) ?? shape("path", { class: name });
      this.shapes.set(name, node);
      node.setAttribute("d", d);
      return node;
    });
    const isSame = nodes.length === this.node.childElementCount;
    if (!isSame || nodes.some((node) => node.parentNode !== this.node))
      this.node.replaceChildren(...nodes);
  }

  /** @param {Path} path @param {number} selected @returns {Map<string, string>} path data by class */
  ticks({ tokens }, selected) {
    const { cells, store } = this.box;
    /** @type {Map<string, string>} */
    const ticks = new Map();
    let [begin, highest, isSelected] = [-1, -1, false];
    for (let index = 0; index < cells.length; index += 1) {
      const { line, left, right } = cells[index];
      if (begin < 0) begin = left;
      highest = Math.max(highest, tokens[index].entropy);
      isSelected ||= selected === index;
      // Tokens that are too narrow, such as those behind the ellipsis, share a tick.
      if (right - begin < NARROWEST && cells[index + 1]?.line === line) continue;
      const level = entropyClass(highest, store.run.threshold);
      const name = `tick ${level}${isSelected ? " selected" : ""}`;
      const width = Math.max(1, right - begin - 1);
      ticks.set(name, (ticks.get(name) ?? "") + rectangle(begin, this.top(line), width));
      [begin, highest, isSelected] = [-1, -1, false];
    }
    return ticks;
  }

  /** @param {Path} path @returns {Map<string, string>} path data by class */
  marks(path) {
    const { cells, height, store } = this.box;
    /** @type {Map<string, string>} */
    const marks = new Map();
    if (!store.unknowns.size && !hasMissed(store, path)) return marks;
    const add = (/** @type {string} */ name, /** @type {string} */ d) =>
      marks.set(name, (marks.get(name) ?? "") + d);
    let [lastLine, lastX] = [0, -100];
    for (const [index, { line, left, right }] of cells.entries()) {
      const [x, top] = [(left + right) / 2, line * LINE - height / 2];
      const place = placeIn(path, index);
      if (store.unknownAt(place.path.id, place.index)) {
        add("unknown", diamond(x, top, UNKNOWN));
        continue;
      }
      // The circles of tokens behind the ellipsis would overlap.
      const isCrowded = line === lastLine && x - lastX < CROWDED;
      if (isCrowded || !missedFork(store, place.path, place.index)) continue;
      [lastLine, lastX] = [line, x];
      add("missed", `M${short(x - 2.5)} ${short(top)}${CIRCLE}`);
    }
    return marks;
  }

  /** The top of a line's ticks. @param {number} line */
  top(line) {
    const { height } = this.box;
    const isOneLine = height <= BOX;
    return isOneLine ? height / 2 - 5 : line * LINE + BOX - 5 - height / 2;
  }
}

/** @param {number} x @param {number} y @param {number} width */
function rectangle(x, y, width) {
  return `M${short(x)} ${short(y)}h${short(width)}v${TICK}h${short(-width)}Z`;
}

/** With one decimal. @param {number} value */
function short(value) {
  return Math.round(10 * value) / 10;
}

const FAR_HEIGHT = 10; // px
const FAR_INSET = 9; // px, left and right of the tokens
const FAR_NARROWEST = 4; // px; narrower tokens share a tick

/**
 * The entropies of a box that is too small on the screen for words: all its tokens side by side, with
 * equal widths. They are drawn once and shown up to the cursor.
 */
export class FarStrip {
  /** @param {PathBox} box */
  constructor(box) {
    this.box = box;
    /** Its right edge is the cursor. */
    this.node = shape("svg", { class: "far-strip", y: -FAR_HEIGHT / 2, height: FAR_HEIGHT });
    /** @type {Path | null} */
    this.path = null;
    this.drawnWith = "";
  }

  /**
   * @param {Path} path @param {number} count tokens up to the cursor
   * @param {number} selected index of a token, or -1
   * @returns {number} the width of the box
   */
  render(path, count, selected) {
    const { width } = this.box.target;
    const drawnWith = `${width},${selected},${this.box.store.run.threshold}`;
    if (this.path !== path || this.drawnWith !== drawnWith) {
      this.path = path;
      this.drawnWith = drawnWith;
      this.node.replaceChildren(...this.ticks(path, selected));
    }
    const shown = FAR_INSET + ((width - 2 * FAR_INSET) * count) / Math.max(1, path.tokens.length);
    set(this.node, { width: shown.toFixed(1) });
    return shown + FAR_INSET;
  }

  /** Adjacent tokens of the same colour share a shape. @param {Path} path @param {number} selected */
  ticks({ tokens }, selected) {
    const { target } = this.box;
    const each = (target.width - 2 * FAR_INSET) / Math.max(1, tokens.length);
    const together = Math.max(1, Math.ceil(FAR_NARROWEST / each));
    /** @type {Map<string, string>} */
    const ticks = new Map();
    let [begin, before] = [0, ""];
    for (let from = 0; from < tokens.length + together; from += together) {
      const name = this.nameOf(tokens.slice(from, from + together), selected - from);
      if (name === before) continue;
      const [left, right] = [begin, Math.min(from, tokens.length)].map(
        (at) => FAR_INSET + at * each,
      );
      const d = `M${left.toFixed(1)} 0H${right.toFixed(1)}V${FAR_HEIGHT}H${left.toFixed(1)}Z`;
      if (before) ticks.set(before, (ticks.get(before) ?? "") + d);
      [begin, before] = [from, name];
    }
    return [...ticks].map(([name, d]) => shape("path", { class: name, d }));
  }

  /** @param {Token[]} tokens that share a tick @param {number} selected index of one of them */
  nameOf(tokens, selected) {
    if (!tokens.length) return "";
    const highest = Math.max(...tokens.map(({ entropy }) => entropy));
    const level = entropyClass(highest, this.box.store.run.threshold);
    return `tick far ${level}${selected >= 0 && selected < tokens.length ? " selected" : ""}`;
  }

  /** The token at this place. @param {number} x px from the left edge of the box @param {number} count */
  tokenAt(x, count) {
    const { width } = this.box.target;
    const length = this.path?.tokens.length ?? 0;
    const index = Math.floor(((x - FAR_INSET) / (width - 2 * FAR_INSET)) * length);
    return Math.max(0, Math.min(count - 1, index));
  }
}
