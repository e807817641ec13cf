// Mirrors eab/engine/branching/sampling.py, with filters.py: from logits to the processed
// distribution, its entropy, and draws from it.

/** @import { Config } from "./loading.js" */

export const CANDIDATES = 8; // how many of the most likely tokens are listed, at least

/** The processed next-token distribution of one path: after temperature and filters. */
export class Prediction {
  /** @param {Float64Array} logits (V,) @param {Config} config */
  constructor(logits, config) {
    const best = logits.reduce((one, other) => Math.max(one, other));
    const scores = logits.map((logit) => (logit - best) / config.temperature);
    this.tokens = topP(scores, config.top_p); // those that can be drawn, ascending
    this.scores = this.tokens.map((token) => scores[token]);
    const odds = this.scores.map(Math.exp);
    const total = sum(odds);
    this.logTotal = Math.log(total);
    this.probabilities = odds.map((odd) => odd / total);
    const mean = sum(this.probabilities.map((p, at) => p && p * this.scores[at]));
    this.entropy = Math.max(0, this.logTotal - mean); // nats
    const top = this.most(Math.max(CANDIDATES, config.branch_factor));
    this.topTokens = top.map((at) => this.tokens[at]);
    this.topProbabilities = top.map((at) => this.probabilities[at]);
  }

  /** Where the most likely tokens are, most likely first, of equal ones the lower. @param {number} count */
  most(count) {
    const p = this.probabilities;
    const least = Float64Array.from(p).sort().at(-count) ?? 0;
    const likely = [...p.keys()].filter((at) => p[at] >= least);
    return likely.sort((one, other) => p[other] - p[one]).slice(0, count);
  }

  /** ln p of a token that can be drawn. @param {number} token */
  logProb(token) {
    return this.scores[this.tokens.indexOf(token)] - this.logTotal;
  }

  /**
   * Draw a token by inverting the distribution, in token order; null where none is left.
   * @param {number} uniform @param {number[]} [excluded] tokens that must not be drawn
   */
  draw(uniform, excluded = []) {
    const left = this.probabilities.map((p, at) => (excluded.includes(this.tokens[at]) ? 0 : p));
    const target = uniform * sum(left);
    let seen = 0;
    const drawn = left.findIndex((p) => {
      seen += p;
      return p > 0 && seen > target;
    });
    const at = drawn < 0 ? left.findLastIndex((p) => p > 0) : drawn; // rounding
    return at < 0 ? null : this.tokens[at];
  }
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((one, other) => one + other, 0);
}

/**
 * The most likely tokens that together have this probability. Only those with more than the V-th
 * part of what is dropped are sorted, as all others are dropped.
 * @param {Float64Array} scores (V,) @param {number} probability
 */
function topP(scores, probability) {
  const tokens = [...scores.keys()];
  if (probability >= 1) return tokens;
  const odds = tokens.map((token) => Math.exp(scores[token]));
  const dropped = (1 - probability) * sum(odds);
  const least = dropped / tokens.length;
  const likely = tokens.filter((_, at) => odds[at] > least);
  const rising = likely.toSorted((one, other) => scores[one] - scores[other] || one - other);
  let below = sum(odds.filter((odd) => odd <= least));
  const first = rising.findIndex((token) => {
    below += Math.exp(scores[token]);
    return below > dropped;
  });
  const kept = new Set(rising.slice(first)); // without a first one, by rounding, the last one
  return likely.filter((token) => kept.has(token));
}
