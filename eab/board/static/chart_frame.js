// What the two charts have in common: margins and axes. Charts are small: each change redraws them.

/** @import { Board } from "./board.js" */
/** @import { Attributes } from "./types.d.ts" */
import { shape } from "./elements.js";

export const LEFT = 52;
export const RIGHT = 20;
export const TOP = 20; // the title of the vertical axis stands there
export const BOTTOM = 34;

/**
 * @param {Board} board
 * @param {SVGSVGElement} svg
 */
export function frameOf(board, svg) {
  const { width, height } = board.sizes.of(svg);
  const innerWidth = Math.max(10, width - LEFT - RIGHT);
  return { width, height, innerWidth, innerHeight: height - TOP - BOTTOM };
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
