// From numbers to axes and colours.

/**
 * The class of an entropy: e0 (sure) and so on; e3: at the threshold or above, e4: twice that.
 * @param {number} entropy
 * @param {number} threshold
 */
export function entropyClass(entropy, threshold) {
  const ratio = entropy / Math.max(threshold, 1e-9);
  const level = [0.2, 0.5, 1, 2].filter((bound) => ratio >= bound).length;
  return `e${level}`;
}

/**
 * Round values from 0 to `highest`, about `wanted` of them.
 * @param {number} highest
 * @param {number} [wanted]
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
