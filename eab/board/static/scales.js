// From numbers to axes and colours.

/**
 * The class of an entropy: how unsure the model was.
 * @param {number} entropy
 * @param {number} threshold
 */
export function entropyClass(entropy, threshold) {
  if (entropy >= threshold) return "unsure";
  return entropy >= threshold / 2 ? "fairly-sure" : "sure";
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
