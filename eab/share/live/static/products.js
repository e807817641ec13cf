// Mirrors eab/engine/models/products.py: matrix products in blocks of two rows and four outputs, so
// that each number that is loaded serves several sums. Weights are float32. Sums are double, which
// is no slower here, and more exact than in Python.

/**
 * x (T, K) times the transposed weights (N, K), row-major -> (T, N). N must be a multiple of 4.
 * @param {Float32Array} weights @param {Float64Array} x @param {number} outputs N @param {number} inputs K
 */
export function product(weights, x, outputs, inputs) {
  const rows = x.length / inputs;
  const out = new Float64Array(rows * outputs);
  for (let row = 0; row < rows; row += 2) twoRows(weights, x, out, row, outputs, inputs);
  return out;
}

/** @param {Float32Array} weights @param {Float64Array} x @param {Float64Array} out @param {number} row @param {number} outputs @param {number} inputs */
function twoRows(weights, x, out, row, outputs, inputs) {
  const next = Math.min(row + 1, x.length / inputs - 1); // a single row is computed twice
  const x0 = row * inputs;
  const x1 = next * inputs;
  for (let n = 0; n < outputs; n += 4) {
    const w0 = n * inputs;
    const w1 = w0 + inputs;
    const w2 = w1 + inputs;
    const w3 = w2 + inputs;
    let a0 = 0;
    let a1 = 0;
    let a2 = 0;
    let a3 = 0;
    let b0 = 0;
    let b1 = 0;
    let b2 = 0;
    let b3 = 0;
    for (let k = 0; k < inputs; k++) {
      const a = x[x0 + k];
      const b = x[x1 + k];
      a0 += weights[w0 + k] * a;
      b0 += weights[w0 + k] * b;
      a1 += weights[w1 + k] * a;
      b1 += weights[w1 + k] * b;
      a2 += weights[w2 + k] * a;
      b2 += weights[w2 + k] * b;
      a3 += weights[w3 + k] * a;
      b3 += weights[w3 + k] * b;
    }
    out.set([a0, a1, a2, a3], row * outputs + n);
    out.set([b0, b1, b2, b3], next * outputs + n);
  }
}
