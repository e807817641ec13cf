// The path limit of the policy `fair`, as in eab/engine/branching/fair.py (Fearnhead and Clifford, 2003).

import { fsum } from "./fsum.js";

/**
 * Keep at most `limit` of the weights; returns the new weights, with null for dropped ones. The
 * heaviest stay as they are; the others are kept by systematic resampling, and then weigh the same.
 * @param {number[]} weights @param {number} limit @param {number} uniform in [0, 1)
 * @returns {(number | null)[]}
 */
export function fearnheadClifford(weights, limit, uniform) {
  if (weights.length <= limit) return weights;
  const order = weights.map((_, index) => index).sort((a, b) => weights[b] - weights[a]);
  const { kept, c } = thresholdOf(
    order.map((index) => weights[index]),
    limit,
  );
  /** @type {(number | null)[]} */
  const result = weights.map(() => null);
  for (const index of order.slice(0, kept)) result[index] = weights[index];
  const light = order.slice(kept).filter((index) => weights[index] > 0);
  light.sort((a, b) => a - b);
  const total = fsum(light.map((index) => weights[index]));
  let [seen, picked] = [0, 0];
  for (const index of light) {
    seen += weights[index];
    const share = index === light.at(-1) ? 1 : seen / total;
    // rounding must not add or lose a weight
    const reached = Math.min(limit - kept, Math.floor(share * (limit - kept) + uniform));
    if (reached <= picked) continue;
    result[index] = isClose(weights[index], c, 1e-12) ? weights[index] : c;
    picked = reached;
  }
  return result;
}

/**
 * How many of the heaviest weights stay as they are, and what the others then weigh.
 * @param {number[]} descending @param {number} limit
 */
function thresholdOf(descending, limit) {
  for (let kept = 0; kept < limit; kept++) {
    const c = fsum(descending.slice(kept)) / (limit - kept);
    if (descending[kept] <= c * (1 - 1e-12)) return { kept, c };
  }
  return { kept: limit, c: 0 };
}

/** @param {number} a @param {number} b @param {number} relative */
export function isClose(a, b, relative) {
  return a === b || Math.abs(a - b) <= relative * Math.max(Math.abs(a), Math.abs(b));
}
