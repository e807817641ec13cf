// Which boxes an edge of the picture cuts: large letters in a part of the tree would be cut in two, and
// half a word says nothing.

/** @import { Point, Size } from "./types.d.ts" */

/** @typedef {{ left: number, right: number, top: number, bottom: number }} Edges px */

/** @param {Edges} edges of a box in the tree @param {Point & { k: number }} camera @returns {Edges} */
export function onScreen({ left, right, top, bottom }, { x, y, k }) {
  return { left: left * k + x, right: right * k + x, top: top * k + y, bottom: bottom * k + y };
}

/**
 * Where a box is not wholly in the picture; "" if it is.
 * @param {Edges} edges @param {Size} size of the picture
 * @returns {"top" | "bottom" | "left" | "right" | ""}
 */
export function cutAt({ left, right, top, bottom }, { width, height }) {
  if (top < 0) return "top";
  if (bottom > height) return "bottom";
  if (left < 0) return "left";
  return right > width ? "right" : "";
}
