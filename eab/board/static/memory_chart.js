// The KV cache in bytes. At the cursor: all paths together, next to separate caches, and each live
// path. Below: all paths together at every step.

/** @import { RunStore } from "./run_store.js" */
/** @import { PathRows, Send, Step } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import {
  axisTitle,
  binned,
  fitUnits,
  frameOf,
  gridLine,
  LEFT,
  pointIn,
  pointList,
  RIGHT,
  stepX,
  TOP,
  ticks,
} from "./chart_frame.js";
import { set, shape } from "./elements.js";
import { bytes } from "./formatting.js";
import { tokenCountAt } from "./paths.js";

const GAP = 56; // between the two parts, for the numbers of the second axis
const DIGIT = 7; // px; bars have no path numbers if the longest number has no room
const NARROWEST_NAMED = 48; // px of a bar; narrower bars have no room for "separate caches"
const KIB = 2 ** 10;
const LINES_SHARE = 0.28; // of the height, for the lines by step
const LOWEST_WITH_LINES = 150; // px; a lower chart has only the bars
const LINES_GAP = 26; // px above the lines, for the numbers of the bars
const NUMBERS = 20; // px below the bars if there are no lines
const LINES_BOTTOM = 16; // px below the lines; their step numbers are below the entropy chart

/** @typedef {{ shared: number, private: number, state: number, spare: number }} Parts in bytes */
/** @typedef {{ highest: number, scale: number, left: number, right: number }} Area of the chart */
/** @typedef {{ left: number, slot: number, rows: PathRows[], spare: number }} Bars of the live paths */

const KINDS = /** @type {const} */ (["shared", "private", "state", "spare"]);

export class MemoryChart {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    // url() finds the first element with this id in the document, which may be another board's.
    this.hatchName = `eab-hatch-${Math.random().toString(36).slice(2)}`;
    this.axes = shape("g"); // and lines: the parts that do not move with the cursor
    this.totals = [...KINDS, "independent", "reused"].map((kind) => shape("rect", { class: kind }));
    this.each = shape("g");
    this.help = shape("title");
    this.bars = shape("g", { class: "path-bar" });
    this.cursor = shape("line", { class: "cursor" });
    this.drawn = shape("g", {}, this.axes, ...this.totals, this.each, this.bars, this.cursor);
    this.svg = shape("svg", { class: "chart memory", role: "img" }, this.hatch(), this.drawn);
    this.svg.style.setProperty("--hatch", `url(#${this.hatchName})`);
    this.drawnWith = "";
    /** @type {Bars} */
    this.shown = { left: 0, slot: 1, rows: [], spare: 0 };
    this.listen();
  }

  // ---- pointer

  listen() {
    const { bars } = this;
    bars.addEventListener("pointermove", (event) => {
      const rows = this.rowsUnder(event);
      this.help.textContent = rows ? wordsOf(rows, this.shown.spare) : "";
      if (this.view.hovered !== (rows?.path ?? null)) this.send("hover", rows?.path ?? null);
    });
    bars.addEventListener("pointerleave", () => this.send("hover", null));
    bars.addEventListener("click", (event) => {
      const record = this.store.paths.get(this.rowsUnder(event)?.path ?? -1);
      if (record) this.send("select", record.id, tokenCountAt(record, this.view.cursor) - 1);
    });
  }

  /** The rows of the path whose bar is under the pointer. @param {MouseEvent} event */
  rowsUnder(event) {
    const { left, slot, rows } = this.shown;
    const { x } = pointIn(this.view, this.svg, event);
    return rows[Math.max(0, Math.min(rows.length - 1, Math.floor((x - left) / slot)))];
  }

  // ---- drawing

  render() {
    const { store, view } = this;
    const step = store.stepAt(view.cursor);
    this.drawn.classList.toggle("hidden", !step);
    fitUnits(view, this.svg);
    if (step) this.draw(step);
    set(this.svg, { "aria-label": store.sentencesAt(view.cursor).memory || "KV cache" });
  }

  /** @param {Step} step */
  draw(step) {
    const { width, height, innerWidth } = frameOf(this.view, this.svg);
    const middle = LEFT + Math.max(84, Math.min(170, innerWidth * 0.4));
    const all = this.area(this.store.highestBytes * 1.05, LEFT, middle);
    const { changes } = this.view.branches;
    const drawnWith = [changes, width, height, this.store.highestBytes, this.store.lastStep].join();
    if (this.drawnWith !== drawnWith) {
      this.drawnWith = drawnWith;
      this.axes.replaceChildren(...this.namesOf(all), ...(this.hasLines() ? this.lines() : []));
    }
    this.drawTotals(step, all);
    this.drawBars(step, middle + GAP, width - RIGHT);
    const x = this.stepX(this.view.cursor).toFixed(1);
    const top = this.bottom() + LINES_GAP;
    this.cursor.classList.toggle("hidden", !this.hasLines());
    set(this.cursor, { x1: x, x2: x, y1: top, y2: height - LINES_BOTTOM });
  }

  /** The pattern of private rows, which distinguishes them without colours. */
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
    return { highest, scale: Math.max(0, this.bottom() - TOP) / highest, left, right };
  }

  hasLines() {
    return frameOf(this.view, this.svg).height >= LOWEST_WITH_LINES;
  }

  /** The base line of the bars. */
  bottom() {
    const { height } = frameOf(this.view, this.svg);
    if (!this.hasLines()) return height - NUMBERS;
    return TOP + (height - TOP - LINES_BOTTOM) * (1 - LINES_SHARE) - LINES_GAP;
  }

  /** @param {number} step */
  stepX(step) {
    return stepX(this.store, this.view, this.svg, step);
  }

  /** Lines of the bytes that all paths, or separate caches, held at every step. */
  lines() {
    const { width, height } = frameOf(this.view, this.svg);
    const [top, bottom] = [this.bottom() + LINES_GAP, height - LINES_BOTTOM];
    const highest = this.store.highestBytes * 1.05;
    const y = (/** @type {number} */ count) => bottom - ((bottom - top) * count) / highest;
    const steps = [...this.store.steps.values()].sort((a, b) => a.step - b.step);
    const line = (/** @type {string} */ kind, /** @type {(step: Step) => number} */ count) => {
      const points = steps.map((step) => ({ x: this.stepX(step.step), y: y(count(step)) }));
      return shape("polyline", { class: `bytes-line ${kind}`, points: pointList(binned(points)) });
    };
    const right = width - RIGHT;
    const scale = (bottom - top) / highest;
    return [
      ...this.axis({ highest, scale, left: LEFT, right }, bottom, 2),
      line("separate", (step) => step.independent),
      line("held", (step) => step.shared + step.private + step.spare),
      axisTitle("bytes of all paths at each step", { x: (LEFT + right) / 2, y: height - 4 }),
    ];
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

  // ---- all paths together

  /** The axis of the bars of all paths, and the bars' names. @param {Area} area */
  namesOf(area) {
    const { left, right } = area;
    const numberY = this.bottom() + 15;
    const isNarrow = (right - left) / 2 - 8 < NARROWEST_NAMED;
    const separateName = isNarrow ? "separate" : "separate caches";
    const { cache } = this.store.run;
    const own = cache === "tree" ? "EAB" : cache;
    return [
      ...this.axis(area, this.bottom(), 3),
      shape("text", { class: "tick-label", x: left, y: numberY }, own),
      shape("text", { class: "tick-label end", x: right + 6, y: numberY }, separateName),
    ];
  }

  /** @param {Step} step @param {Area} area */
  drawTotals(step, { left, right, scale }) {
    const width = (right - left) / 2 - 8;
    const tall = step.independent * scale;
    const { shared, private: own, spare } = step;
    const state = step.paths.reduce((sum, path) => sum + path.state, 0);
    const parts = { shared, private: own - state, state, spare };
    for (const [index, { y, height }] of this.stack(parts, scale).entries()) {
      const place = { x: left + 4, y: y.toFixed(1), width, height: height.toFixed(1) };
      set(this.totals[index], place);
    }
    const separate = { x: left + width + 12, y: this.bottom() - tall, width, height: tall };
    set(this.totals[KINDS.length], separate);
    const reused = Math.min(step.reused, shared + own) * scale;
    const place = { x: left + 4, y: this.bottom() - reused, width, height: reused };
    set(this.totals[KINDS.length + 1], place);
  }

  /**
   * Stack shared rows, private rows, states and reserved rows.
   * @param {Parts} parts @param {number} scale
   */
  stack(parts, scale) {
    let y = this.bottom();
    return KINDS.map((kind) => {
      const height = Math.max(0, parts[kind] * scale);
      y -= height;
      return { y, height };
    });
  }

  // ---- each live path

  /** @param {Step} step @param {number} left @param {number} right */
  drawBars(step, left, right) {
    const { rank } = this.view.layout;
    const rows = [...step.paths].sort((a, b) => rank[a.path] - rank[b.path]);
    const spare = step.spare / Math.max(1, rows.length);
    const sums = rows.map((path) => path.shared + path.private + spare);
    const longest = Math.max(0, ...sums) || KIB; // without a cache, nothing sets the scale
    const area = this.area(longest * 1.08, left, right);
    const slot = (right - left) / Math.max(1, rows.length);
    this.shown = { left, slot, rows, spare };
    const digits = String(Math.max(0, ...rows.map(({ path }) => path))).length;
    const y = this.bottom() + 15;
    const title = `each live path at step ${step.step}`;
    const numbers = slot < DIGIT * (digits + 1) ? [] : rows;
    this.each.replaceChildren(
      ...this.axis(area, this.bottom(), 3),
      ...numbers.map(({ path }, index) => {
        const place = { x: left + (index + 0.5) * slot, y };
        return shape("text", { class: "tick-label middle", ...place }, String(path));
      }),
      shape("text", { class: "axis-title end", x: right, y: 10 }, title),
    );
    this.bars.replaceChildren(this.help, ...this.shapesOf(area.scale));
  }

  /** One shape per look, because there may be hundreds of paths. @param {number} scale */
  shapesOf(scale) {
    const { left, slot, rows, spare } = this.shown;
    const width = Math.max(2, Math.min(34, slot - 3));
    /** @type {Map<string, string>} */
    const shapes = new Map();
    for (const [index, { path, shared, private: own, state }] of rows.entries()) {
      const x = left + index * slot + (slot - width) / 2;
      const highlight = this.view.classOf(path);
      const parts = this.stack({ shared, private: own - state, state, spare }, scale);
      for (const [kind, { y, height }] of parts.entries()) {
        const name = `${KINDS[kind]}${highlight}`;
        const d = `M${x.toFixed(1)} ${y.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h${(-width).toFixed(1)}Z`;
        shapes.set(name, (shapes.get(name) ?? "") + d);
      }
    }
    return [...shapes].map(([name, d]) => shape("path", { class: name, d }));
  }
}

/** Describes a bar. @param {PathRows} rows @param {number} spare */
function wordsOf({ path, shared, private: own, state }, spare) {
  return [
    `path ${path}: shared ${bytes(shared)}`,
    `private ${bytes(own - state)}`,
    ...(state ? [`its state ${bytes(state)}`] : []),
    `its equal part of the reserved rows ${bytes(spare)}`,
  ].join(", ");
}
