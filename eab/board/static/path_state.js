// The state of a path once a step is done.

/** @import { Path, Status } from "./types.d.ts" */

/**
 * How many of its tokens are there.
 * @param {Path} path
 * @param {number} step
 */
export function tokenCountAt(path, step) {
  return Math.max(0, Math.min(path.tokens.length, step - path.born + 1));
}

/**
 * The text of these first tokens.
 * @param {Path} path
 * @param {number} count
 */
export function textOf(path, count) {
  return path.tokens
    .slice(0, count)
    .map((token) => token.piece)
    .join("");
}

/**
 * @param {Path} path
 * @param {number} step
 * @returns {Status}
 */
export function statusAt(path, step) {
  const lastStep = path.born + path.tokens.length - 1;
  if (path.status === "forked") return step > lastStep ? "forked" : "live";
  const since = path.status === "pruned" ? Math.max(lastStep, path.touched) : lastStep;
  return step >= since ? path.status : "live";
}

/**
 * @param {Path} path
 * @param {number} step
 */
export function weightAt(path, step) {
  const change = path.weights.findLast((one) => one.step <= step) ?? path.weights[0];
  return change.weight;
}
