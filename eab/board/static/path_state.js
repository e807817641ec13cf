// The state of a path after a step.

/** @import { Path, Status } from "./types.d.ts" */

/** How many of its tokens exist after the step. @param {Path} path @param {number} step */
export function tokenCountAt(path, step) {
  return Math.max(0, Math.min(path.tokens.length, step - path.born + 1));
}

/** The text of the first `count` tokens. @param {Path} path @param {number} count */
export function textOf(path, count) {
  return path.tokens
    .slice(0, count)
    .map((token) => token.piece)
    .join("");
}

/** @param {Path} path @param {number} step @returns {Status} */
export function statusAt(path, step) {
  const lastStep = path.born + path.tokens.length - 1;
  if (path.status === "forked") return step > lastStep ? "forked" : "live";
  const since = path.status === "pruned" ? Math.max(lastStep, path.touched) : lastStep;
  return step >= since ? path.status : "live";
}

/** @param {Path} path @param {number} step @returns {number} */
export function weightAt(path, step) {
  if (path.joined) return textsAt(path, step).reduce((sum, text) => sum + weightAt(text, step), 0);
  const change = path.weights.findLast((weight) => weight.step <= step) ?? path.weights[0];
  return change.weight;
}

/**
 * The texts that end in the box of a path; none once it has forked.
 * @param {Path} path @param {number} step
 */
export function textsAt(path, step) {
  if (!path.joined) return statusAt(path, step) === "forked" ? [] : [path];
  const isText = (/** @type {Path} */ text) => ["live", "finished"].includes(statusAt(text, step));
  return path.joined.all.filter((text) => text.born <= step && isText(text));
}
