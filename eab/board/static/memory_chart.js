// The KV cache at the cursor in bytes: of all paths together, beside separate caches, and of each
// live path.

/** @import { Board } from "./board.js" */
/** @import { PathRows, Step } from "./types.d.ts" */
import { axisTitle, BOTTOM, frameOf, gridLine, LEFT, RIGHT, TOP } from "./chart_frame.js";
import { set, shape } from "./elements.js";
import { bytes } from "./format.js";
import { tokenCountAt } from "./path_state.js";
import { ticks } from "./scales.js";

const GAP = 56; // between the two parts; the numbers of the second axis are there
const NARROWEST_NUMBERED = 16; // px; narrower bars have no number below them
const KIB = 2 ** 10;

/** @typedef {{ shared: number, private: number, spare: number }} Parts in bytes */
/** @typedef {{ highest: number, scale: number, left: number, right: number }} Area of the chart */

export class MemoryChart {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.svg = shape("svg", { class: "chart memory", role: "img" });
  }

  render() {
    const step = this.board.records.stepAt(this.board.cursor);
    this.svg.replaceChildren(this.hatch(), ...(step ? this.bars(step) : []));
    set(this.svg, { "aria-label": this.board.sentences().memory || "KV cache" });
  }

  /** @param {Step} step */
  bars(step) {
    const { width, innerWidth } = frameOf(this.board, this.svg);
    const middle = LEFT + Math.max(120, Math.min(170, innerWidth * 0.36));
    const { spare, paths } = step;
    const part = spare / Math.max(1, paths.length);
    const sums = paths.map((path) => path.shared + path.private + part);
    const longest = Math.max(0, ...sums) || KIB; // without a cache there is nothing to scale by
    const all = this.area(this.board.records.highestBytes * 1.05, LEFT, middle);
    const each = this.area(longest * 1.08, middle + GAP, width - RIGHT);
    return [...this.totals(step, all), ...this.pathBars(step, each)];
  }

  /** The pattern of private rows: they can be told apart without colours. */
  hatch() {
    const size = { width: 5, height: 5 };
    const pattern = shape("pattern", {
      id: "eab-hatch",
      ...size,
      patternUnits: "userSpaceOnUse",
      patternTransform: "rotate(45)",
    });
    pattern.append(
      shape("rect", { class: "private-ground", ...size }),
      shape("rect", { class: "private-line", width: 2, height: 5 }),
    );
    const definitions = shape("defs");
    definitions.append(pattern);
    return definitions;
  }

  /**
   * @param {number} highest bytes at the top
   * @param {number} left
   * @param {number} right
   * @returns {Area}
   */
  area(highest, left, right) {
    const { innerHeight } = frameOf(this.board, this.svg);
    return { highest, scale: innerHeight / highest, left, right };
  }

  /** Where the bars stand. */
  bottom() {
    return TOP + frameOf(this.board, this.svg).innerHeight;
  }

  /** @param {Area} area */
  axis({ highest, scale, left, right }) {
    const unit = highest >= KIB ** 2 ? KIB ** 2 : KIB;
    return ticks(highest / unit, 3).flatMap((count) =>
      gridLine(bytes(count * unit), this.bottom() - count * unit * scale, left, right),
    );
  }

  /**
   * One bar: shared, private and reserved rows on top of each other.
   * @param {Parts} parts
   * @param {{ x: number, width: number }} place
   * @param {number} scale
   * @param {string} [highlight]
   */
  stack(parts, { x, width }, scale, highlight = "") {
    let y = this.bottom();
    return /** @type {const} */ (["shared", "private", "spare"]).map((kind) => {
      const height = Math.max(0, parts[kind] * scale);
      y -= height;
      const place = { x, y: y.toFixed(1), width, height: height.toFixed(1) };
      return shape("rect", { class: `${kind}${highlight}`, ...place });
    });
  }

  /**
   * @param {Step} step
   * @param {Area} area
   */
  totals(step, area) {
    const { left, right, scale } = area;
    const { height } = frameOf(this.board, this.svg);
    const width = (right - left) / 2 - 8;
    const tall = step.independent * scale;
    const separate = { x: left + width + 12, y: this.bottom() - tall, width, height: tall };
    const numberY = height - BOTTOM + 15;
    const { cache } = this.board.run;
    const own = cache === "tree" ? "EAB" : cache;
    return [
      ...this.axis(area),
      ...this.stack(step, { x: left + 4, width }, scale),
      shape("rect", { class: "independent", ...separate }),
      shape("text", { class: "tick-label", x: left, y: numberY }, own),
      shape("text", { class: "tick-label end", x: right + 6, y: numberY }, "separate caches"),
      axisTitle("all paths", { x: (left + right) / 2, y: height - 4 }),
    ];
  }

  /**
   * @param {Step} step
   * @param {Area} area
   */
  pathBars(step, area) {
    const { left, right, scale } = area;
    const { height } = frameOf(this.board, this.svg);
    const slot = (right - left) / Math.max(1, step.paths.length);
    const width = Math.max(2, Math.min(34, slot - 3));
    const spare = step.spare / Math.max(1, step.paths.length);
    const rows = this.board.wholeLayout.y;
    const inTreeOrder = [...step.paths].sort((one, other) => rows[one.path] - rows[other.path]);
    const bars = inTreeOrder.flatMap((path, index) => {
      const x = left + index * slot + (slot - width) / 2;
      const bar = this.pathBar({ ...path, spare }, { x, width }, scale);
      if (slot < NARROWEST_NUMBERED) return [bar];
      const number = { x: left + (index + 0.5) * slot, y: height - BOTTOM + 15 };
      return [bar, shape("text", { class: "tick-label middle", ...number }, String(path.path))];
    });
    const title = `live paths at step ${step.step}`;
    return [
      ...this.axis(area),
      ...bars,
      axisTitle(title, { x: (left + right) / 2, y: height - 4 }),
    ];
  }

  /**
   * @param {PathRows & Parts} parts
   * @param {{ x: number, width: number }} place
   * @param {number} scale
   */
  pathBar(parts, place, scale) {
    const { board } = this;
    const { path } = parts;
    const words = [
      `path ${path}: shared ${bytes(parts.shared)}`,
      `private ${bytes(parts.private)}`,
      `its equal part of the reserved rows ${bytes(parts.spare)}`,
    ];
    const group = shape("g", { class: "path-bar" });
    const bars = this.stack(parts, place, scale, board.highlight.classOf(path));
    group.append(shape("title", {}, words.join(", ")), ...bars);
    group.addEventListener("pointerenter", () => board.highlight.hover(path));
    group.addEventListener("pointerleave", () => board.highlight.hover(null));
    group.addEventListener("click", () => {
      const record = board.paths.get(path);
      if (record) board.select(path, tokenCountAt(record, board.cursor) - 1);
    });
    return group;
  }
}
