// Mirrors eab/models/products.py: matrix products, blocked so that each weight that is loaded serves
// four rows. Weights are float32 and sums double: no slower here, and more exact than in Python.

/**
 * x (T, K) times the transposed weights (N, K), row-major -> (T, N). N must be even.
 * @param {Float32Array} weights @param {Float64Array} x @param {number} outputs N @param {number} inputs K
 */
export function product(weights, x, outputs, inputs) {
  const rows = x.length / inputs;
  const out = new Float64Array(rows * outputs);
  for (let row = 0; row < rows; row += 4) fourRows(weights, x, out, row, outputs, inputs);
  return out;
}

/** @param {Float32Array} weights @param {Float64Array} x @param {Float64Array} out @param {number} row @param {number} outputs @param {number} inputs */
function fourRows(weights, x, out, row, outputs, inputs) {
  // The last block may have fewer rows: then it computes the last one several times.
  const last = x.length / inputs - 1;
  const rows = [row, Math.min(row + 1, last), Math.min(row + 2, last), Math.min(row + 3, last)];
  const [x0, x1, x2, x3] = rows.map((each) => each * inputs);
  const [o0, o1, o2, o3] = rows.map((each) => each * outputs);
  for (let n = 0; n < outputs; n += 2) {
    const first = n * inputs;
    const second = first + inputs;
    let a0 = 0,
      a1 = 0,
      a2 = 0,
      a3 = 0;
    let b0 = 0,
      b1 = 0,
      b2 = 0,
      b3 = 0;
    for (let k = 0; k < inputs; k++) {
      const a = weights[first + k];
      const b = weights[second + k];
      const v0 = x[x0 + k];
      const v1 = x[x1 + k];
      const v2 = x[x2 + k];
      const v3 = x[x3 + k];
      a0 += a * v0;
      a1 += a * v1;
      a2 += a * v2;
      a3 += a * v3;
      b0 += b * v0;
      b1 += b * v1;
      b2 += b * v2;
      b3 += b * v3;
    }
    out[o0 + n] = a0;
    out[o1 + n] = a1;
    out[o2 + n] = a2;
    out[o3 + n] = a3;
    out[o0 + n + 1] = b0;
    out[o1 + n + 1] = b1;
    out[o2 + n + 1] = b2;
    out[o3 + n + 1] = b3;
  }
}
