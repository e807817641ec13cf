// What the two charts have in common: margins and axes. Charts are small: each change redraws them.
// Presented, they are magnified as a whole: their units are then larger than CSS pixels.

/** @import { Board } from "./board.js" */
/** @import { Attributes } from "./types.d.ts" */
import { set, shape } from "./elements.js";

export const LEFT = 52;
export const RIGHT = 20;
export const TOP = 20; // the title of the vertical axis stands there
const BOTTOM = 34;
const BOTTOM_OF_LOW = 18; // without the title of the axis
const LOW = 120; // px; a lower chart has no title at its axis

/**
 * The room of a chart, in its units.
 * @param {Board} board
 * @param {SVGSVGElement} svg
 */
export function frameOf(board, svg) {
  const { chartScale } = board.presentation;
  const size = board.sizes.of(svg);
  const [width, height] = [size.width / chartScale, size.height / chartScale];
  const isLow = height < LOW;
  const bottom = height - (isLow ? BOTTOM_OF_LOW : BOTTOM);
  const innerWidth = Math.max(10, width - LEFT - RIGHT);
  return { width, height, bottom, isLow, innerWidth, innerHeight: Math.max(10, bottom - TOP) };
}

/**
 * Magnify the chart as far as it is presented.
 * @param {Board} board
 * @param {SVGSVGElement} svg
 */
export function fitUnits(board, svg) {
  const { width, height } = frameOf(board, svg);
  set(svg, { viewBox: `0 0 ${width.toFixed(2)} ${height.toFixed(2)}` });
}

/**
 * Where the pointer is, in the units of the chart.
 * @param {Board} board
 * @param {SVGSVGElement} svg
 * @param {MouseEvent} event
 */
export function pointIn(board, svg, event) {
  const { left, top } = svg.getBoundingClientRect();
  const { chartScale } = board.presentation;
  return { x: (event.clientX - left) / chartScale, y: (event.clientY - top) / chartScale };
}

/**
 * @param {string} text
 * @param {Attributes} attributes
 */
export function axisTitle(text, attributes) {
  return shape("text", { class: "axis-title middle", ...attributes }, text);
}

/**
 * A horizontal line with its number at the left.
 * @param {string} text
 * @param {number} y
 * @param {number} left
 * @param {number} right
 */
export function gridLine(text, y, left, right) {
  return [
    shape("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
    shape("text", { class: "tick-label end", x: left - 5, y: y + 4 }, text),
  ];
}
