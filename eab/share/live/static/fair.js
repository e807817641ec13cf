// Mirrors eab/engine/branching/fair.py: unbiased branching, with shares of the weight that sum to
// 1. Also the policy `greedy`, of the probe.

/** @import { Config } from "./loading.js" */
/** @import { Prediction } from "./sampling.js" */
import { fsum, uniform } from "../../../board/static/population.js";
import { EabError } from "./errors.js";

/**
 * @typedef {import("../../../board/static/population.js").Leaf & { streamKey: bigint, token: number }} Leaf
 * A live or finished path, with its last token.
 * @typedef {{ token: number, tokenLogProb: number, weight: number, heir: boolean }} Child
 * One continuation of a leaf; the heir would have come without a fork.
 * @typedef {{ branch(leaf: Leaf, prediction: Prediction, step: number): Child[] }} Policy
 */

/** The most likely token, no forks. @type {Policy} */
export const GREEDY = {
  branch(_, prediction) {
    const [token] = prediction.topTokens;
    return [{ token, tokenLogProb: prediction.logProb(token), weight: 1, heir: true }];
  },
};

/** Unbiased branching; the class in Python says how. @implements {Policy} */
export class FairPolicy {
  /** @param {Config} config @param {number} threshold nats */
  constructor(config, threshold) {
    this.config = config;
    this.threshold = threshold;
    this.seed = BigInt(config.seed);
  }

  /** @param {Leaf} leaf @param {Prediction} prediction @param {number} step @returns {Child[]} */
  branch(leaf, prediction, step) {
    const heir = prediction.draw(this.number(leaf, step, 0));
    if (heir === null) throw new EabError("no token can be drawn; the weights may be damaged");
    const isUnsure = prediction.entropy >= this.threshold;
    const forks = isUnsure && leaf.weight >= this.config.min_fork_weight;
    const choices = forks ? this.shares(prediction, heir, leaf, step) : [[heir, 1]];
    return choices.map(([token, share]) => {
      const tokenLogProb = prediction.logProb(token);
      return { token, tokenLogProb, weight: leaf.weight * share, heir: token === heir };
    });
  }

  /** A random number of the path. @param {Leaf} leaf @param {number} step @param {number} number */
  number(leaf, step, number) {
    return uniform(this.seed, leaf.streamKey, step, number);
  }

  /**
   * Tokens with their shares of the parent's weight; the shares sum to 1. The rest is one child: the
   * heir, if it is not among the most likely, else a token drawn from the rest.
   * @param {Prediction} prediction @param {number} heir @param {Leaf} leaf @param {number} step
   */
  shares(prediction, heir, leaf, step) {
    const least = this.config.branch_min_p * prediction.topProbabilities[0];
    const likely = prediction.topProbabilities.slice(0, this.config.branch_factor - 1);
    let shares = likely.filter((p) => p > 0 && p >= least);
    const head = prediction.topTokens.slice(0, shares.length);
    let restShare = 1 - fsum(shares);
    const rest = head.includes(heir) ? prediction.draw(this.number(leaf, step, 1), head) : heir;
    if (rest !== null && restShare > 0) {
      const isLight = restShare < least;
      // A light rest is kept at random; the cases in which the heir is in it are a part of that.
      const odds = (restShare / least - restShare) / (1 - restShare);
      if (isLight && (rest === heir || this.number(leaf, step, 2) < odds)) {
        const scale = (1 - least) / (1 - restShare);
        shares = shares.map((share) => scale * share);
        restShare = least;
      }
      if (restShare >= least) {
        shares.push(restShare);
        head.push(rest);
      }
    }
    const total = fsum(shares);
    return head.map((token, at) => [token, shares[at] / total]);
  }
}
