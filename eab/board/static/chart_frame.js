// What both charts share: margins, axes, and parts that are drawn once for a whole run and shown up
// to the cursor. When presented, a chart is magnified as a whole, and its units are larger than CSS
// pixels.

/** @import { RunStore } from "./run_store.js" */
/** @import { Attributes, Point } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { set, shape } from "./elements.js";

export const LEFT = 52;
export const RIGHT = 20;
export const TOP = 20; // room for the title of the vertical axis
const BOTTOM = 34;
const BOTTOM_OF_LOW = 18; // without the axis title
const LOW = 120; // px; a lower chart has no axis title

/** The dimensions of a chart, in its units. @param {ViewState} view @param {SVGSVGElement} svg */
export function frameOf(view, svg) {
  const { chartScale } = view;
  const size = view.sizes.of(svg);
  const [width, height] = [size.width / chartScale, size.height / chartScale];
  const isLow = height < LOW;
  const bottom = height - (isLow ? BOTTOM_OF_LOW : BOTTOM);
  const innerWidth = Math.max(10, width - LEFT - RIGHT);
  return { width, height, bottom, isLow, innerWidth, innerHeight: Math.max(10, bottom - TOP) };
}

/**
 * The last step on the axis; for a live run, the last step that it can reach.
 * @param {RunStore} store
 */
export function lastStepOf({ run, lastStep }) {
  return Math.max(1, run.ended ? lastStep : Math.max(lastStep, run.max_steps - 1));
}

/**
 * The middle of a step's band, in the units of the chart; the tree by step also uses it.
 * @param {RunStore} store @param {ViewState} view @param {SVGSVGElement} svg @param {number} step
 */
export function stepX(store, view, svg, step) {
  const { innerWidth } = frameOf(view, svg);
  return LEFT + ((step + 0.5) / (lastStepOf(store) + 1)) * innerWidth;
}

/**
 * Magnify the chart by the factor for presenting.
 * @param {ViewState} view @param {SVGSVGElement} svg
 */
export function fitUnits(view, svg) {
  const { width, height } = frameOf(view, svg);
  set(svg, { viewBox: `0 0 ${width.toFixed(2)} ${height.toFixed(2)}` });
}

/**
 * The pointer's position, in the units of the chart.
 * @param {ViewState} view @param {SVGSVGElement} svg @param {MouseEvent} event
 */
export function pointIn(view, svg, event) {
  const { left, top } = svg.getBoundingClientRect();
  const { chartScale } = view;
  return { x: (event.clientX - left) / chartScale, y: (event.clientY - top) / chartScale };
}

/** @param {string} text @param {Attributes} attributes */
export function axisTitle(text, attributes) {
  return shape("text", { class: "axis-title middle", ...attributes }, text);
}

/**
 * A horizontal line with its number on the left.
 * @param {string} text @param {number} y @param {number} left @param {number} right
 */
export function gridLine(text, y, left, right) {
  return [
    shape("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
    shape("text", { class: "tick-label end", x: left - 5, y: y + 4 }, text),
  ];
}

/**
 * Round values from 0 to `highest`, about `wanted` of them.
 * @param {number} highest @param {number} [wanted]
 */
export function ticks(highest, wanted = 4) {
  const rough = highest / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [1, 2, 5, 10].map((factor) => factor * power);
  const step = steps.find((candidate) => candidate >= rough) ?? 10 * power;
  const count = Math.floor((highest / step) * 1.0001);
  return Array.from({ length: count + 1 }, (_, index) => +(index * step).toPrecision(6));
}

/**
 * The path data of marks, from which a prefix up to any step can be taken quickly.
 * @typedef {{ step: number, d: string }} Mark
 */
export class Marks {
  /** @param {Mark[]} marks */
  constructor(marks) {
    const ordered = [...marks].sort((a, b) => a.step - b.step);
    this.steps = ordered.map(({ step }) => step);
    this.all = ordered.map(({ d }) => d).join("");
    let end = 0;
    this.ends = ordered.map(({ d }) => {
      end += d.length;
      return end;
    });
  }

  /** @param {number} step */
  upTo(step) {
    const last = lastUpTo(this.steps, step);
    return last < 0 ? "" : this.all.slice(0, this.ends[last]);
  }
}

/**
 * The index of the last number that is at most `highest`; -1 if there is none.
 * @param {number[]} ordered @param {number} highest
 */
function lastUpTo(ordered, highest) {
  let [low, high] = [-1, ordered.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (ordered[middle] <= highest) low = middle;
    else high = middle - 1;
  }
  return low;
}

/**
 * The highest and the lowest point in each column of pixels, in order.
 * @param {Point[]} points from left to right
 * @returns {Point[]}
 */
export function binned(points) {
  /** @type {Point[]} */
  const kept = [];
  for (let at = 0; at < points.length; ) {
    const column = Math.floor(points[at].x);
    let [low, high] = [at, at];
    for (; at < points.length && Math.floor(points[at].x) === column; at += 1) {
      if (points[at].y < points[low].y) low = at;
      if (points[at].y > points[high].y) high = at;
    }
    kept.push(points[Math.min(low, high)]);
    if (low !== high) kept.push(points[Math.max(low, high)]);
  }
  return kept;
}

/** The `points` attribute of a line or an area. @param {Point[]} points */
export function pointList(points) {
  return points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
}
