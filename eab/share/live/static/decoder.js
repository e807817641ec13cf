// Mirrors eab/engine/models/decoder.py: the forward pass of Llama, for all paths of a run at once.
//
//     embed -> (norm -> qkv -> rotate -> attend -> output -> norm -> gate, up -> down) x layers
//           -> norm -> logits
//
// Matrices are row-major, x is (T, hidden). K and V of a token are written once, in the row of the
// cache that belongs to it; a token reads the list of rows of its path (see tree.js).

import { product } from "./products.js";

/** @import { ForwardBatch } from "./tree.js" */
/** @typedef {Record<string, number>} Shape As in `config.json`; every head has its own K and V. */
/** @typedef {(name: string) => Float32Array} Layer its weights */

export class Decoder {
  /** @param {Shape} shape @param {Record<string, Float32Array>} weights by name */
  constructor(shape, weights) {
    this.shape = shape;
    this.weights = weights;
    this.embedding = weights["model.embed_tokens.weight"]; // also the head
  }

  /**
   * The logits after each path, (V,) each.
   * @param {ForwardBatch} batch @param {import("./tree.js").TreeCache} cache
   */
  forward(batch, cache) {
    const x = gathered(this.embedding, batch.ids, this.shape.hidden_size);
    for (const [index, keys] of cache.keys.entries()) {
      const layer = (/** @type {string} */ name) =>
        this.weights[`model.layers.${index}.${name}.weight`];
      this.attend(layer, x, batch, keys, cache.values[index]);
      this.mlp(layer, x);
    }
    return this.logits(gathered(x, batch.logitsIndices, this.shape.hidden_size));
  }

  /**
   * Add what attention makes of x.
   * @param {Layer} layer @param {Float64Array} x
   * @param {ForwardBatch} batch @param {Float32Array} keys @param {Float32Array} values
   */
  attend(layer, x, batch, keys, values) {
    const { hidden_size: hidden, head_dim: headDim } = this.shape;
    const normed = this.normed(x, layer("input_layernorm"));
    const [query, key, value] = ["q", "k", "v"].map((name) =>
      product(layer(`self_attn.${name}_proj`), normed, hidden, hidden),
    );
    this.rotate(query, batch.positions);
    this.rotate(key, batch.positions);
    for (const [token, row] of batch.rows.entries()) {
      keys.set(key.subarray(token * hidden, (token + 1) * hidden), row * hidden);
      values.set(value.subarray(token * hidden, (token + 1) * hidden), row * hidden);
    }
    const read = new Float64Array(x.length);
    for (const [token, rows] of batch.seen.entries()) {
      for (let at = token * hidden; at < (token + 1) * hidden; at += headDim) {
        this.readRows(query, keys, values, read, at, rows.slice(0, batch.positions[token] + 1));
      }
    }
    add(x, product(layer("self_attn.o_proj"), read, hidden, hidden));
  }

  /**
   * Attention of one head of one token, which begins at `at`, over rows.
   * @param {Float64Array} query @param {Float32Array} keys @param {Float32Array} values
   * @param {Float64Array} out @param {number} at @param {number[]} rows
   */
  readRows(query, keys, values, out, at, rows) {
    const { head_dim: headDim, hidden_size: hidden } = this.shape;
    const starts = rows.map((row) => row * hidden + (at % hidden));
    const scores = starts.map((start) => {
      let score = 0;
      for (let d = 0; d < headDim; d++) score += query[at + d] * keys[start + d];
      return score / Math.sqrt(headDim);
    });
    const largest = scores.reduce((one, other) => Math.max(one, other));
    const odds = scores.map((score) => Math.exp(score - largest));
    const total = odds.reduce((one, other) => one + other);
    for (const [seen, start] of starts.entries()) {
      const share = odds[seen] / total;
      for (let d = 0; d < headDim; d++) out[at + d] += share * values[start + d];
    }
  }

  /** Rotary embedding: numbers half a head apart turn in pairs. @param {Float64Array} x @param {number[]} positions */
  rotate(x, positions) {
    const { head_dim: headDim, hidden_size: hidden, rope_theta } = this.shape;
    const half = headDim / 2;
    const frequencies = Array.from({ length: half }, (_, pair) =>
      Math.fround(1 / rope_theta ** (pair / half)),
    );
    for (let start = 0; start < x.length; start += headDim) {
      const position = positions[Math.floor(start / hidden)];
      for (const [pair, frequency] of frequencies.entries()) {
        const angle = Math.fround(position * frequency); // as Python rounds it
        const first = x[start + pair];
        const second = x[start + half + pair];
        x[start + pair] = first * Math.cos(angle) - second * Math.sin(angle);
        x[start + half + pair] = second * Math.cos(angle) + first * Math.sin(angle);
      }
    }
  }

  /** Add what the gated MLP makes of x. @param {Layer} layer @param {Float64Array} x */
  mlp(layer, x) {
    const { hidden_size: hidden, intermediate_size: intermediate } = this.shape;
    const normed = this.normed(x, layer("post_attention_layernorm"));
    const gate = product(layer("mlp.gate_proj"), normed, intermediate, hidden);
    const up = product(layer("mlp.up_proj"), normed, intermediate, hidden);
    for (let at = 0; at < gate.length; at++) gate[at] *= up[at] / (1 + Math.exp(-gate[at])); // SiLU
    add(x, product(layer("mlp.down_proj"), gate, hidden, intermediate));
  }

  /** RMSNorm of each row. @param {Float64Array} x @param {Float32Array} weights */
  normed(x, weights) {
    const { hidden_size: hidden, rms_norm_eps: epsilon } = this.shape;
    const out = new Float64Array(x.length);
    for (let start = 0; start < x.length; start += hidden) {
      let squares = 0;
      for (let at = 0; at < hidden; at++) squares += x[start + at] ** 2;
      const factor = 1 / Math.sqrt(squares / hidden + epsilon);
      for (let at = 0; at < hidden; at++) out[start + at] = x[start + at] * factor * weights[at];
    }
    return out;
  }

  /** @param {Float64Array} x */
  logits(x) {
    const hidden = this.shape.hidden_size;
    const vocabSize = this.embedding.length / hidden;
    const out = product(
      this.embedding,
      this.normed(x, this.weights["model.norm.weight"]),
      vocabSize,
      hidden,
    );
    const count = x.length / hidden;
    return Array.from({ length: count }, (_, at) =>
      out.subarray(at * vocabSize, (at + 1) * vocabSize),
    );
  }
}

/** These rows of a matrix. @param {Float32Array | Float64Array} from @param {number[]} rows @param {number} width */
function gathered(from, rows, width) {
  const out = new Float64Array(rows.length * width);
  for (const [to, row] of rows.entries()) {
    out.set(from.subarray(row * width, (row + 1) * width), to * width);
  }
  return out;
}

/** @param {Float64Array} x @param {Float64Array} more */
function add(x, more) {
  for (let at = 0; at < x.length; at++) x[at] += more[at];
}
