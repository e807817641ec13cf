// Mirrors eab/engine/generation.py, with paths.py and step_events.py: the state of one run, and the
// events of its forward passes. Every pass computes the next token of every live path.

/** @import { RunEvent } from "../../../board/static/types.d.ts" */
/** @import { Child, Leaf, Policy } from "./fair.js" */
/** @import { Config } from "./loading.js" */
import { childStreamKey, itself, Population, ROOT } from "../../../board/static/population.js";
import { reservedRows } from "../../../board/static/run.js";
import { CANDIDATES, Prediction } from "./sampling.js";
import { TreeCache } from "./tree.js";

const MIN_RECORDED_PROBABILITY = 0.0005;

/** @extends {Population<Leaf>} */
export class Generation extends Population {
  /**
   * @param {import("./loading.js").Model} model @param {number[]} prompt token ids
   * @param {Config} config @param {Policy} policy
   */
  constructor(model, prompt, config, policy) {
    const cache = new TreeCache(model.card, config.r);
    super({ path: 0, streamKey: ROOT, weight: 1, token: -1, finished: false }, config, cache);
    this.tree = cache;
    this.model = model;
    this.prompt = prompt;
    this.policy = policy;
    this.reserved = reservedRows({ prompt_tokens: prompt, config }, config.max_paths);
  }

  /** One forward pass and the decisions after it. @returns {RunEvent[]} */
  pass() {
    const start = performance.now();
    const { step, live, config } = this;
    const paths = live.map((leaf) => leaf.path);
    const pending = step ? live.map((leaf) => [leaf.token]) : [this.prompt];
    const stepsLeft = config.max_new_tokens - step;
    const batch = this.tree.place(paths, pending, this.reserved, stepsLeft);
    const logits = this.model.decoder.forward(batch, this.tree);
    const forward_seconds = (performance.now() - start) / 1000;
    const predictions = logits.map((row) => new Prediction(row, config));
    const seen = predictions.map((each, at) => [paths[at], each.entropy, this.listed(each), null]);
    const events = [
      ...batch.growths.map((growth) => ({ event: "RowsAllocated", step, growth })),
      { event: "KvMeasured", step, usage: this.tree.usage(paths) },
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
    const families = this.leaves.map((leaf) => {
      if (leaf.finished) return [itself(leaf)];
      const children = this.policy.branch(leaf, predictions[live.indexOf(leaf)], this.step);
      return children.map((child) => this.member(leaf, child));
    });
    this.prune(families.flat());
    return this.commit(families, ({ token }) => {
      if (this.model.stopIds.has(token)) return "stop";
      return this.step + 1 >= this.config.max_new_tokens ? "length" : "";
    });
  }

  /** Only the heir keeps the random stream of its parent. @param {Leaf} leaf @param {Child} child */
  member(leaf, { token, tokenLogProb, weight, heir }) {
    const { tokenizer } = this.model;
    const streamKey = heir ? leaf.streamKey : childStreamKey(leaf.streamKey, this.step, token);
    const record = [token, tokenizer.text(token), tokenLogProb, tokenizer.isSpecial(token)];
    return { leaf, token: record, weight, heir, becomes: { token, streamKey } };
  }
}
