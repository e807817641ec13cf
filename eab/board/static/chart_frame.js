// What the two charts have in common: margins and axes. Charts are small: each change redraws them.
// Presented, they are magnified as a whole: their units are then larger than CSS pixels.

/** @import { RunStore } from "./run_store.js" */
/** @import { Attributes } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { set, shape } from "./elements.js";

export const LEFT = 52;
export const RIGHT = 20;
export const TOP = 20; // the title of the vertical axis stands there
const BOTTOM = 34;
const BOTTOM_OF_LOW = 18; // without the title of the axis
const LOW = 120; // px; a lower chart has no title at its axis

/** The room of a chart, in its units. @param {ViewState} view @param {SVGSVGElement} svg */
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
 * The last step on the axis: while a run is live, the last that it can have.
 * @param {RunStore} store
 */
export function lastStepOf({ run, lastStep }) {
  return Math.max(1, run.ended ? lastStep : Math.max(lastStep, run.maxSteps - 1));
}

/**
 * The middle of a step's band, in the units of the chart; the tree by step uses it, too.
 * @param {RunStore} store @param {ViewState} view @param {SVGSVGElement} svg @param {number} step
 */
export function stepX(store, view, svg, step) {
  const { innerWidth } = frameOf(view, svg);
  return LEFT + ((step + 0.5) / (lastStepOf(store) + 1)) * innerWidth;
}

/**
 * Magnify the chart as far as it is presented.
 * @param {ViewState} view @param {SVGSVGElement} svg
 */
export function fitUnits(view, svg) {
  const { width, height } = frameOf(view, svg);
  set(svg, { viewBox: `0 0 ${width.toFixed(2)} ${height.toFixed(2)}` });
}

/**
 * Where the pointer is, in the units of the chart.
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
 * A horizontal line with its number at the left.
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
  if (!Number.isFinite(highest) || highest <= 0) return [0];
  const rough = highest / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [1, 2, 5, 10].map((factor) => factor * power);
  const step = steps.find((candidate) => candidate >= rough) ?? 10 * power;
  const count = Math.min(50, Math.floor((highest / step) * 1.0001));
  return Array.from({ length: count + 1 }, (_, index) => +(index * step).toPrecision(6));
}
