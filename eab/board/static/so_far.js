// Parts that a chart draws once for a whole run and shows up to the cursor: marks in the order of
// their steps, and lines with few points per column of pixels.

/** @import { Point } from "./types.d.ts" */

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
