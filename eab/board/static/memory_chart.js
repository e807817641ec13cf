// The KV cache in bytes. At the cursor: of all paths together, beside separate caches, and of each
// live path. Under that: of all paths together at every step.

/** @import { RunStore } from "./run_store.js" */
/** @import { PathRows, Send, Step } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import {
  axisTitle,
  fitUnits,
  frameOf,
  gridLine,
  LEFT,
  RIGHT,
  stepX,
  TOP,
  ticks,
} from "./chart_frame.js";
import { set, shape } from "./elements.js";
import { bytes } from "./format.js";
import { tokenCountAt } from "./path_state.js";

const GAP = 56; // between the two parts; the numbers of the second axis are there
const NARROWEST_NUMBERED = 16; // px; narrower bars have no number below
const NARROWEST_NAMED = 48; // px of a bar; beside narrower ones "separate caches" has no room
const KIB = 2 ** 10;
const LINES_SHARE = 0.28; // of the height, for the lines over the steps
const LOWEST_WITH_LINES = 150; // px; a lower chart has only the bars
const LINES_GAP = 26; // px over them; the numbers of the bars are there
const NUMBERS = 20; // px under the bars, where nothing is below them
const LINES_BOTTOM = 16; // px under them; their numbers stand under the entropy chart

/** @typedef {{ shared: number, private: number, spare: number }} Parts in bytes */
/** @typedef {{ highest: number, scale: number, left: number, right: number }} Area of the chart */

export class MemoryChart {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    this.svg = shape("svg", { class: "chart memory", role: "img" });
    // url() takes the first element of this name in the document, and there it is another board's.
    this.hatchName = `eab-hatch-${Math.random().toString(36).slice(2)}`;
    this.svg.style.setProperty("--hatch", `url(#${this.hatchName})`);
  }

  render() {
    const step = this.store.stepAt(this.view.cursor);
    const drawn = step ? [...this.bars(step), ...(this.hasLines() ? this.lines() : [])] : [];
    fitUnits(this.view, this.svg);
    this.svg.replaceChildren(this.hatch(), ...drawn);
    set(this.svg, { "aria-label": this.store.sentencesAt(this.view.cursor).memory || "KV cache" });
  }

  /** @param {Step} step */
  bars(step) {
    const { width, innerWidth } = frameOf(this.view, this.svg);
    const middle = LEFT + Math.max(84, Math.min(170, innerWidth * 0.4));
    const { spare, paths } = step;
    const part = spare / Math.max(1, paths.length);
    const sums = paths.map((path) => path.shared + path.private + part);
    const longest = Math.max(0, ...sums) || KIB; // without a cache there is nothing to scale by
    const all = this.area(this.store.highestBytes * 1.05, LEFT, middle);
    const each = this.area(longest * 1.08, middle + GAP, width - RIGHT);
    return [...this.totals(step, all), ...this.pathBars(step, each)];
  }

  /** The pattern of private rows: they can be told apart without colours. */
  hatch() {
    const size = { width: 5, height: 5 };
    const turned = { patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
    const pattern = shape(
      "pattern",
      { id: this.hatchName, ...size, ...turned },
      shape("rect", { class: "private-ground", ...size }),
      shape("rect", { class: "private-line", width: 2, height: 5 }),
    );
    return shape("defs", {}, pattern);
  }

  /**
   * @param {number} highest bytes at the top
   * @param {number} left @param {number} right @returns {Area}
   */
  area(highest, left, right) {
    return { highest, scale: (this.bottom() - TOP) / highest, left, right };
  }

  hasLines() {
    return frameOf(this.view, this.svg).height >= LOWEST_WITH_LINES;
  }

  /** Where the bars stand. */
  bottom() {
    const { height } = frameOf(this.view, this.svg);
    if (!this.hasLines()) return height - NUMBERS;
    return TOP + (height - TOP - LINES_BOTTOM) * (1 - LINES_SHARE) - LINES_GAP;
  }

  /** @param {number} step */
  stepX(step) {
    return stepX(this.store, this.view, this.svg, step);
  }

  /** What all paths held at every step, and what separate caches would have held. */
  lines() {
    const { height } = frameOf(this.view, this.svg);
    const [top, bottom] = [this.bottom() + LINES_GAP, height - LINES_BOTTOM];
    const highest = this.store.highestBytes * 1.05;
    const y = (/** @type {number} */ count) => bottom - ((bottom - top) * count) / highest;
    const steps = [...this.store.steps.values()].sort((a, b) => a.step - b.step);
    const line = (/** @type {string} */ kind, /** @type {(step: Step) => number} */ count) => {
      const points = steps.map(
        (step) => `${this.stepX(step.step).toFixed(1)},${y(count(step)).toFixed(1)}`,
      );
      return shape("polyline", { class: `bytes-line ${kind}`, points: points.join(" ") });
    };
    const x = this.stepX(this.view.cursor);
    return [
      ...this.axis(
        { highest, scale: (bottom - top) / highest, left: LEFT, right: this.right() },
        bottom,
        2,
      ),
      line("separate", (step) => step.independent),
      line("held", (step) => step.shared + step.private + step.spare),
      shape("line", { class: "cursor", x1: x, x2: x, y1: top, y2: bottom }),
      axisTitle("bytes of all paths at each step", { x: (LEFT + this.right()) / 2, y: height - 4 }),
    ];
  }

  right() {
    return frameOf(this.view, this.svg).width - RIGHT;
  }

  /**
   * @param {Area} area
   * @param {number} bottom where 0 is
   * @param {number} wanted numbers on the axis
   */
  axis({ highest, scale, left, right }, bottom, wanted) {
    const unit = highest >= KIB ** 2 ? KIB ** 2 : KIB;
    return ticks(highest / unit, wanted).flatMap((count) =>
      gridLine(bytes(count * unit), bottom - count * unit * scale, left, right),
    );
  }

  /**
   * One bar: shared, private and reserved rows on top of each other.
   * @param {Parts} parts @param {{ x: number, width: number }} place @param {number} scale
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

  /** @param {Step} step @param {Area} area */
  totals(step, area) {
    const { left, right, scale } = area;
    const width = (right - left) / 2 - 8;
    const tall = step.independent * scale;
    const separate = { x: left + width + 12, y: this.bottom() - tall, width, height: tall };
    const numberY = this.bottom() + 15;
    const separateName = width < NARROWEST_NAMED ? "separate" : "separate caches";
    const { cache } = this.store.run;
    const own = cache === "tree" ? "EAB" : cache;
    return [
      ...this.axis(area, this.bottom(), 3),
      ...this.stack(step, { x: left + 4, width }, scale),
      shape("rect", { class: "independent", ...separate }),
      shape("text", { class: "tick-label", x: left, y: numberY }, own),
      shape("text", { class: "tick-label end", x: right + 6, y: numberY }, separateName),
    ];
  }

  /** @param {Step} step @param {Area} area */
  pathBars(step, area) {
    const { left, right, scale } = area;
    const slot = (right - left) / Math.max(1, step.paths.length);
    const width = Math.max(2, Math.min(34, slot - 3));
    const spare = step.spare / Math.max(1, step.paths.length);
    const { rank } = this.view.layout;
    const inTreeOrder = [...step.paths].sort((a, b) => rank[a.path] - rank[b.path]);
    const bars = inTreeOrder.flatMap((path, index) => {
      const x = left + index * slot + (slot - width) / 2;
      const bar = this.pathBar({ ...path, spare }, { x, width }, scale);
      if (slot < NARROWEST_NUMBERED) return [bar];
      const number = { x: left + (index + 0.5) * slot, y: this.bottom() + 15 };
      return [bar, shape("text", { class: "tick-label middle", ...number }, String(path.path))];
    });
    const title = `each live path at step ${step.step}`;
    return [
      ...this.axis(area, this.bottom(), 3),
      ...bars,
      shape("text", { class: "axis-title end", x: right, y: 10 }, title),
    ];
  }

  /**
   * @param {PathRows & Parts} parts @param {{ x: number, width: number }} place
   * @param {number} scale
   */
  pathBar(parts, place, scale) {
    const { path } = parts;
    const words = [
      `path ${path}: shared ${bytes(parts.shared)}`,
      `private ${bytes(parts.private)}`,
      `its equal part of the reserved rows ${bytes(parts.spare)}`,
    ];
    const bars = this.stack(parts, place, scale, this.view.classOf(path));
    const title = shape("title", {}, words.join(", "));
    const group = shape("g", { class: "path-bar" }, title, ...bars);
    group.addEventListener("pointerenter", () => this.send("hover", path));
    group.addEventListener("pointerleave", () => this.send("hover", null));
    group.addEventListener("click", () => {
      const record = this.store.paths.get(path);
      if (record) this.send("select", path, tokenCountAt(record, this.view.cursor) - 1);
    });
    return group;
  }
}
