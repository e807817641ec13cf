// The entropies of a box that is too small on the screen for words: all its tokens side by side,
// with equal widths. They are drawn once and shown up to the cursor.

/** @import { PathBox } from "./path_box.js" */
/** @import { Path, Token } from "./types.d.ts" */
import { entropyClass } from "./box_words.js";
import { set, shape } from "./elements.js";

const HEIGHT = 10; // px
const INSET = 9; // px, left and right of the tokens
const NARROWEST = 4; // px; narrower tokens share a tick

export class FarStrip {
  /** @param {PathBox} box */
  constructor(box) {
    this.box = box;
    /** Its right edge is the cursor. */
    this.node = shape("svg", { class: "far-strip", y: -HEIGHT / 2, height: HEIGHT });
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
    const shown = INSET + ((width - 2 * INSET) * count) / Math.max(1, path.tokens.length);
    set(this.node, { width: shown.toFixed(1) });
    return shown + INSET;
  }

  /** Adjacent tokens of the same colour share a shape. @param {Path} path @param {number} selected */
  ticks({ tokens }, selected) {
    const { target } = this.box;
    const each = (target.width - 2 * INSET) / Math.max(1, tokens.length);
    const together = Math.max(1, Math.ceil(NARROWEST / each));
    /** @type {Map<string, string>} */
    const ticks = new Map();
    let [begin, before] = [0, ""];
    for (let from = 0; from < tokens.length + together; from += together) {
      const name = this.nameOf(tokens.slice(from, from + together), selected - from);
      if (name === before) continue;
      const [left, right] = [begin, Math.min(from, tokens.length)].map((at) => INSET + at * each);
      const d = `M${left.toFixed(1)} 0H${right.toFixed(1)}V${HEIGHT}H${left.toFixed(1)}Z`;
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
    const index = Math.floor(((x - INSET) / (width - 2 * INSET)) * length);
    return Math.max(0, Math.min(count - 1, index));
  }
}
