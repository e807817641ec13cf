// The entropy of each token of a box, as a colour below the token. A mark above the token shows
// that the model was unsure and the path did not fork, or that only a run could tell. There is one
// shape per colour, because a large tree has thousands of tokens.

/** @import { PathBox } from "./path_box.js" */
/** @import { Path } from "./types.d.ts" */
import { entropyClass } from "./box_words.js";
import { diamond, shape } from "./elements.js";
import { hasMissed, missedFork } from "./fork_reasons.js";
import { BOX, LINE } from "./layout.js";
import { placeIn } from "./same_answer.js";

const TICK = 3.5; // px, its height
const NARROWEST = 2; // px; narrower tokens share a tick
const CROWDED = 5; // px between two circles
const CIRCLE = "a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0Z";
const UNKNOWN = 4.5; // px, half the width of its diamond

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
    let [begin, highest, isSelected] = [-1, 0, false];
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
      [begin, highest, isSelected] = [-1, 0, false];
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
