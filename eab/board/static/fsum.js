/**
 * The sum, rounded once, as Python's `math.fsum` (Shewchuk's algorithm).
 * @param {number[]} values
 */
export function fsum(values) {
  /** @type {number[]} */
  let parts = []; // that do not overlap, smallest first
  for (let value of values) {
    const next = [];
    for (const part of parts) {
      const [high, low] = Math.abs(value) < Math.abs(part) ? [part, value] : [value, part];
      value = high + low;
      const rest = low - (value - high);
      if (rest) next.push(rest);
    }
    parts = [...next, value];
  }
  return rounded(parts);
}

/** @param {number[]} parts that do not overlap, smallest first */
function rounded(parts) {
  let sum = parts.pop() ?? 0;
  while (parts.length) {
    const before = sum;
    const part = /** @type {number} */ (parts.pop());
    sum = before + part;
    const rest = part - (sum - before);
    if (!rest) continue;
    // halfway between two numbers, what is left decides
    const next = parts.at(-1) ?? 0;
    const doubled = sum + 2 * rest;
    return next * rest > 0 && doubled - sum === 2 * rest ? doubled : sum;
  }
  return sum;
}
