// Mirrors eab/engine/generation.py, with paths.py and step_events.py: the state of one run, and the
// events of its forward passes. Every pass computes the next token of every live path.

import { EabError } from "./errors.js";
import { grown } from "./fair.js";
import { ROOT } from "./random_streams.js";
import { CANDIDATES, Prediction } from "./sampling.js";
import { TreeCache } from "./tree.js";

/** @import { Child, Config, Event, Leaf, Policy } from "./types.d.ts" */
/** @typedef {Record<"LimitActed" | "Pruned" | "Forked" | "TokensAppended" | "Reweighted" | "PathFinished", any[]>} Changes */

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
    const { num_hidden_layers, hidden_size } = model.decoder.shape;
    this.cache = new TreeCache(num_hidden_layers, hidden_size, config.r);
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
    const { step, live } = this;
    const paths = live.map((leaf) => leaf.path);
    const { batch, growths } = this.prepare(live);
    const logits = this.model.decoder.forward(batch, this.cache);
    const forward_seconds = (performance.now() - start) / 1000;
    const predictions = logits.map((row) => new Prediction(row, this.config));
    if (predictions.some(({ entropy }) => Number.isNaN(entropy))) {
      throw new EabError(`the model returned NaN at step ${step}; its weights may be damaged`);
    }
    const events = [
      ...growths.map((growth) => ({ event: "RowsAllocated", step, growth })),
      { event: "KvMeasured", step, usage: this.cache.usage(paths) },
      { event: "Predicted", step, predictions: predictions.map(this.recorded(paths)) },
      ...this.decide(live, predictions),
    ];
    const seconds = (performance.now() - start) / 1000;
    return [
      ...events,
      { event: "StepTimed", step, tokens: batch.ids.length, seconds, forward_seconds },
    ];
  }

  /** Give rows to the pending tokens. @param {Leaf[]} live */
  prepare(live) {
    const { r, max_new_tokens, max_paths } = this.config;
    const isUpFront = r !== "auto" && r >= max_new_tokens;
    const rows = this.prompt.length + (isUpFront ? max_paths * (max_new_tokens - 1) : 0);
    const first = this.cache.reserve(rows, max_new_tokens - this.step);
    const { batch, growths } = this.cache.prepare(
      live.map((leaf) => leaf.path),
      this.step ? live.map((leaf) => [leaf.token]) : [this.prompt],
    );
    return { batch, growths: [...first, ...growths] };
  }

  /** A prediction of each path as runs record it. @param {number[]} paths */
  recorded(paths) {
    const { tokenizer } = this.model;
    return (/** @type {Prediction} */ prediction, /** @type {number} */ at) => {
      const listed = prediction.topProbabilities.slice(0, CANDIDATES);
      const candidates = listed
        .filter((probability) => probability >= MIN_RECORDED_PROBABILITY)
        .map((probability, rank) => {
          const token = prediction.topTokens[rank];
          return [token, tokenizer.text(token), Number(probability.toFixed(6))];
        });
      return [paths[at], prediction.entropy, candidates, null];
    };
  }

  /** Choose the next token of every live path: fork, prune, finish. @param {Leaf[]} live @param {Prediction[]} predictions */
  decide(live, predictions) {
    const families = new Map(
      live.map((leaf, at) => [leaf, this.policy.branch(leaf, predictions[at], this.step)]),
    );
    const members = this.leaves.map((leaf) => families.get(leaf) ?? [leaf]);
    const weights = this.policy.prune(
      members.flat().map(({ weight }) => weight),
      this.step,
    );
    /** @type {Changes} */
    const changes = {
      LimitActed: [],
      Pruned: [],
      Forked: [],
      TokensAppended: [],
      Reweighted: [],
      PathFinished: [],
    };
    let first = 0;
    this.leaves = this.leaves.flatMap((leaf, at) => {
      const own = weights.slice(first, first + members[at].length);
      first += own.length;
      return this.commitPath(leaf, families.get(leaf), own, changes);
    });
    for (const leaf of this.leaves) this.finish(leaf, changes);
    return asEvents(changes, this.step++);
  }

  /**
   * Drop, keep, extend or fork one path, with the new weights of its children; null drops one.
   * @param {Leaf} leaf @param {Child[] | undefined} family undefined if it has finished
   * @param {(number | null)[]} weights @param {Changes} changes @returns {Leaf[]}
   */
  commitPath(leaf, family, weights, changes) {
    const { path } = leaf;
    if (weights.every((weight) => weight === null)) {
      changes.Pruned.push({ path });
      if (family) this.cache.release(path);
      return [];
    }
    const [weight] = weights.filter((each) => each !== null);
    if (weight !== leaf.weight && !(family && weights.filter((each) => each !== null).length > 1)) {
      changes.Reweighted.push([path, weight]);
    }
    if (!family) return [{ ...leaf, weight }];
    const dropped = family.filter((_, at) => weights[at] === null);
    if (dropped.length) changes.LimitActed.push([path, dropped.map(({ token }) => token)]);
    const kept = family.filter((_, at) => weights[at] !== null);
    const isFork = kept.length > 1;
    const leaves = kept.map((child) =>
      grown(child, isFork ? this.nextPath++ : path, weights[family.indexOf(child)] ?? 0, this.step),
    );
    if (isFork) this.fork(path, leaves, kept, changes);
    const { tokenizer } = this.model;
    for (const [at, { token, tokenLogProb }] of kept.entries()) {
      const [text, special] = [tokenizer.text(token), tokenizer.isSpecial(token)];
      changes.TokensAppended.push([leaves[at].path, token, text, tokenLogProb, special]);
    }
    return leaves;
  }

  /** @param {number} path @param {Leaf[]} leaves @param {Child[]} kept @param {Changes} changes */
  fork(path, leaves, kept, changes) {
    const children = leaves.map((leaf) => leaf.path);
    const heir = children[kept.findIndex((child) => child.heir)] ?? -1;
    const weights = leaves.map((leaf) => leaf.weight);
    changes.Forked.push({ path, children, weights, heir });
    this.cache.fork(path, children);
  }

  /** Finish the leaf and free its rows if its text ends. @param {Leaf} leaf @param {Changes} changes */
  finish(leaf, changes) {
    const isStop = this.model.stopIds.has(leaf.token);
    if (leaf.finished || !(isStop || this.step + 1 >= this.config.max_new_tokens)) return;
    leaf.finished = true;
    changes.PathFinished.push({ path: leaf.path, reason: isStop ? "stop" : "length" });
    this.cache.release(leaf.path);
  }
}

/** In the order that `eab.events` guarantees. @param {Changes} changes @param {number} step @returns {Event[]} */
function asEvents(changes, step) {
  const lists = { LimitActed: "dropped", TokensAppended: "tokens", Reweighted: "weights" };
  return Object.entries(changes).flatMap(([event, some]) => {
    const list = lists[/** @type {keyof typeof lists} */ (event)];
    if (!list) return some.map((change) => ({ event, step, ...change }));
    return some.length ? [{ event, step, [list]: some }] : [];
  });
}
