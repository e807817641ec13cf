// Mirrors eab/engine/generation.py, with paths.py and step_events.py: the state of one run, and the
// events of its forward passes. Every pass computes the next token of every live path.

import { ROOT } from "../../board/static/random_streams.js";
import { grown } from "./fair.js";
import { CANDIDATES, Prediction } from "./sampling.js";
import { TreeCache } from "./tree.js";

/** @import { Config } from "./config.js" */
/** @import { Child, Leaf, Policy } from "./fair.js" */
/** @typedef {{ event: string } & Record<string, any>} Event As a run file has it (eab/events). */
/** @typedef {Record<"dropped" | "pruned" | "forked" | "tokens" | "weights" | "finished", any[]>} Changes */

const MIN_RECORDED_PROBABILITY = 0.0005;

export class Generation {
  /**
   * @param {import("./loading.js").Model} model @param {number[]} prompt token ids
   * @param {Config} config @param {Policy} policy
   */
  constructor(model, prompt, config, policy) {
    this.model = model;
    this.prompt = prompt;
    this.config = config;
    this.policy = policy;
    const { r, max_new_tokens, max_paths } = config;
    this.cache = new TreeCache(model.card, r);
    const isUpFront = r !== "auto" && r >= max_new_tokens;
    /** Rows to hold in any case. */
    this.rows = prompt.length + (isUpFront ? max_paths * (max_new_tokens - 1) : 0);
    /** Live and finished paths, in tree order. @type {Leaf[]} */
    this.leaves = [{ path: 0, streamKey: ROOT, weight: 1, token: -1, finished: false }];
    this.nextPath = 1;
    this.step = 0; // the number of tokens decided on every live path
  }

  /** The paths that still decode, in tree order. */
  get live() {
    return this.leaves.filter((leaf) => !leaf.finished);
  }

  /** One forward pass and the decisions after it. @returns {Event[]} */
  pass() {
    const start = performance.now();
    const { step, live, config } = this;
    const paths = live.map((leaf) => leaf.path);
    const pending = step ? live.map((leaf) => [leaf.token]) : [this.prompt];
    const batch = this.cache.prepare(paths, pending, this.rows, config.max_new_tokens - step);
    const logits = this.model.decoder.forward(batch, this.cache);
    const forward_seconds = (performance.now() - start) / 1000;
    const predictions = logits.map((row) => new Prediction(row, config));
    const seen = predictions.map((each, at) => [paths[at], each.entropy, this.listed(each), null]);
    const events = [
      ...batch.growths.map((growth) => ({ event: "RowsAllocated", step, growth })),
      { event: "KvMeasured", step, usage: this.cache.usage(paths) },
      { event: "Predicted", step, predictions: seen },
      ...this.decide(live, predictions),
    ];
    const seconds = (performance.now() - start) / 1000;
    const tokens = batch.ids.length;
    return [...events, { event: "StepTimed", step, tokens, seconds, forward_seconds }];
  }

  /** The most likely tokens, as runs record them. @param {Prediction} prediction */
  listed({ topTokens, topProbabilities }) {
    return topProbabilities
      .slice(0, CANDIDATES)
      .filter((probability) => probability >= MIN_RECORDED_PROBABILITY)
      .map((probability, at) => {
        const text = this.model.tokenizer.text(topTokens[at]);
        return [topTokens[at], text, Number(probability.toFixed(6))];
      });
  }

  /** Choose the next token of every live path. @param {Leaf[]} live @param {Prediction[]} predictions */
  decide(live, predictions) {
    const { step } = this;
    const families = live.map((leaf, at) => this.policy.branch(leaf, predictions[at], step));
    const members = this.leaves.map((leaf) => families[live.indexOf(leaf)] ?? [leaf]);
    const old = members.flatMap((family) => family.map(({ weight }) => weight));
    const weights = this.policy.prune(old, step);
    /** @type {Changes} */
    const changes = { dropped: [], pruned: [], forked: [], tokens: [], weights: [], finished: [] };
    let first = 0;
    this.leaves = this.leaves.flatMap((leaf, at) => {
      const own = weights.slice(first, first + members[at].length);
      first += own.length;
      return this.commit(leaf, families[live.indexOf(leaf)], own, changes);
    });
    for (const leaf of this.leaves) this.finish(leaf, changes);
    this.step += 1;
    return asEvents(changes, step);
  }

  /**
   * Drop, keep, extend or fork one path, with new weights; null drops a child.
   * @param {Leaf} leaf @param {Child[] | undefined} family of a live path
   * @param {(number | null)[]} weights @param {Changes} changes @returns {Leaf[]}
   */
  commit(leaf, family, weights, changes) {
    const { path } = leaf;
    const left = weights.filter((weight) => weight !== null);
    if (!left.length) {
      changes.pruned.push(path);
      if (family) this.cache.release(path);
      return [];
    }
    const [weight] = left;
    if (left.length === 1 && weight !== leaf.weight) changes.weights.push([path, weight]);
    if (!family) return [{ ...leaf, weight }];
    const kept = family.filter((_, at) => weights[at] !== null);
    const dropped = family.filter((child) => !kept.includes(child));
    if (dropped.length) changes.dropped.push([path, dropped.map(({ token }) => token)]);
    const ids = left.map(() => (left.length > 1 ? this.nextPath++ : path));
    if (left.length > 1) {
      const heir = ids[kept.findIndex((child) => child.heir)] ?? -1;
      changes.forked.push({ path, children: ids, weights: left, heir });
      this.cache.fork(path, ids);
    }
    const { tokenizer } = this.model;
    for (const [at, { token, tokenLogProb }] of kept.entries()) {
      const special = tokenizer.isSpecial(token);
      changes.tokens.push([ids[at], token, tokenizer.text(token), tokenLogProb, special]);
    }
    return kept.map((child, at) => grown(child, ids[at], left[at], this.step));
  }

  /** Finish the leaf and free its rows if its text ends. @param {Leaf} leaf @param {Changes} changes */
  finish(leaf, changes) {
    const isStop = this.model.stopIds.has(leaf.token);
    if (leaf.finished || !(isStop || this.step + 1 >= this.config.max_new_tokens)) return;
    leaf.finished = true;
    changes.finished.push({ path: leaf.path, reason: isStop ? "stop" : "length" });
    this.cache.release(leaf.path);
  }
}

/** In the order that `eab.events` guarantees. @param {Changes} changes @param {number} step @returns {Event[]} */
function asEvents({ dropped, pruned, forked, tokens, weights, finished }, step) {
  return [
    ...(dropped.length ? [{ event: "LimitActed", step, dropped }] : []),
    ...pruned.map((path) => ({ event: "Pruned", step, path })),
    ...forked.map((fork) => ({ event: "Forked", step, ...fork })),
    ...(tokens.length ? [{ event: "TokensAppended", step, tokens }] : []),
    ...(weights.length ? [{ event: "Reweighted", step, weights }] : []),
    ...finished.map((end) => ({ event: "PathFinished", step, ...end })),
  ];
}
