// A finished run at another threshold or growth step r, computed from its events: the same as
// eab/engine/what_if/resimulate.py, which drives the engine itself through the recorded decisions.
// Here are the parts of the engine that a decided run needs: paths, weights, path limit, rows.
//
// First, the events as decisions (eab/engine/what_if/__init__.py): what each live path saw at a
// step, and what it became.

/** @import { RunEvent, Unknown } from "./types.d.ts" */
import { fsum, isClose, itself, Population } from "./population.js";
import { KvRows, MemoryLimitError, Run, reservedRows, tensorRows } from "./run.js";

/**
 * tokens: what the path went on with, [path, token, text, log probability, special] each: one per
 * child, one if it did not fork, none if the path limit dropped it. heir: the index of the child
 * that would have followed without a fork; null if the trace does not say. dropped: the tokens of
 * children that the path limit dropped at birth.
 * @typedef {object} Decision
 * @property {any[]} predicted [path, entropy, candidates, bounds]
 * @property {number} weight
 * @property {any[][]} tokens
 * @property {number[]} paths
 * @property {number[]} weights
 * @property {number | null} heir
 * @property {number[]} dropped
 */

export class Trace {
  /** @param {RunEvent[]} events */
  constructor(events) {
    this.run = new Run();
    /** @type {Map<string, Decision>} */
    this.decisions = new Map();
    /** The weights of paths after a step; null if dropped. @type {Map<string, number | null>} */
    this.changes = new Map();
    /** Why paths finished, by step and path. @type {Map<string, string>} */
    this.finished = new Map();
    for (const event of events) {
      this.noteBefore(event);
      this.run.apply(event);
      this.noteAfter(event);
    }
  }

  /** The decision for a live path; null if the run had ended. @param {number} step @param {number} path */
  decision(step, path) {
    const key = `${step} ${path}`;
    const decision = this.decisions.get(key);
    return decision && (decision.tokens.length || this.changes.has(key)) ? decision : null;
  }

  /** @param {number} step @param {number} path @returns {Decision} */
  at(step, path) {
    const decision = this.decisions.get(`${step} ${path}`);
    if (!decision) throw new Error(`path ${path} continues at step ${step} without a prediction`);
    return decision;
  }

  /** @param {RunEvent} event */
  noteBefore(event) {
    const { step } = event;
    if (event.event === "Predicted") {
      for (const predicted of event.predictions) {
        const weight = this.run.paths[predicted[0]].weights.at(-1)?.[1] ?? 0;
        const nothing = { tokens: [], paths: [], weights: [], heir: null, dropped: [] };
        this.decisions.set(`${step} ${predicted[0]}`, { predicted, weight, ...nothing });
      }
    } else if (event.event === "LimitActed") {
      for (const [path, dropped] of event.dropped) this.at(step, path).dropped = dropped;
    } else if (event.event === "Forked") {
      const { children: paths, weights } = event;
      const heir = paths.indexOf(event.heir);
      Object.assign(this.at(step, event.path), { paths, weights, heir: heir < 0 ? null : heir });
    }
  }

  /** @param {RunEvent} event */
  noteAfter(event) {
    const { step } = event;
    if (event.event === "TokensAppended") {
      for (const token of event.tokens) this.append(step, token);
    } else if (event.event === "Reweighted") {
      for (const [path, weight] of event.weights) this.reweight(step, path, weight);
    } else if (event.event === "Pruned") {
      this.changes.set(`${step} ${event.path}`, null);
    } else if (event.event === "PathFinished") {
      this.finished.set(`${step} ${event.path}`, event.reason);
    }
  }

  /** @param {number} step @param {any[]} token */
  append(step, token) {
    const own = this.decisions.get(`${step} ${token[0]}`);
    if (!own || own.paths.length) {
      this.at(step, this.run.paths[token[0]].parent).tokens.push(token);
      return;
    }
    const heir = own.dropped.length ? null : 0;
    Object.assign(own, { tokens: [token], paths: [token[0]], weights: [own.weight], heir });
  }

  /** @param {number} step @param {number} path @param {number} weight */
  reweight(step, path, weight) {
    this.changes.set(`${step} ${path}`, weight);
    const decision = this.decisions.get(`${step} ${path}`);
    if (decision?.paths.length === 1 && decision.paths[0] === path) decision.weights = [weight];
  }
}

const PREFILL_CHUNK = 512; // tokens
const MIN_PREFILL_CHUNK = 16;
const MAX_CELLS = 2 ** 23; // the tokens of a chunk times the rows they see
const MIB = 2 ** 20;

/**
 * A live or finished path, and the recorded one that it follows.
 * @typedef {import("./population.js").Leaf & { recorded: number }} Leaf
 * @typedef {import("./population.js").Member<Leaf>} Member
 */

/**
 * The recorded run at another threshold (nats), another growth step, or both; null: as recorded.
 * @param {Trace} trace @param {number | null} threshold @param {number | "auto" | null} r
 * @returns {{ events: RunEvent[], unknowns: Unknown[] }} unknowns: where the engine may differ
 */
export function resimulate(trace, threshold, r) {
  const recorded = trace.run.started;
  const config = { ...recorded.config, cache: "tree", drafter: "none" };
  if (r !== null) config.r = r;
  /** @type {RunEvent} */
  const started = { ...recorded, draft: null, config };
  if (threshold !== null) {
    // with `original`, the number of children depends on the number of live paths
    if (config.policy === "original") throw new Error("with this policy, only the model can tell");
    Object.assign(config, { entropy_threshold: threshold, threshold_unit: "nats" });
    started.threshold_nats = threshold;
  }
  return new Resimulator(trace, started, threshold === null).run();
}

/**
 * Whether a run can be recomputed here, for which its KV rows must have a known size. Of a model
 * with a memory of its own, only the tree is recomputed.
 * @param {RunEvent} started
 */
export function canBeResimulated({ model, config }) {
  const row = tensorRows(model).reduce((sum, bytes) => sum + bytes, 0);
  const isKnown = model.own_memory || (row > 0 && row === model.row_bytes);
  return isKnown && Number.isSafeInteger(config.seed);
}

/** @extends {Population<Leaf>} */
class Resimulator extends Population {
  /** @param {Trace} trace @param {RunEvent} started @param {boolean} probes */
  constructor(trace, started, probes) {
    const { config } = started;
    const rows = new KvRows(started.model, config.r, config.kv_limit_mib * MIB);
    super({ path: 0, weight: 1, finished: false, recorded: 0 }, config, rows);
    this.rows = rows;
    this.trace = trace;
    this.started = started;
    this.probed = (probes ? trace.run.probe : []).map((entropy, step) => {
      return { event: "Probed", step, entropy };
    });
    /** @type {RunEvent[]} */
    this.events = [];
    /** @type {Unknown[]} */
    this.unknowns = [];
    this.computed = 0; // tokens of the prompt
    this.same = true; // whether all steps so far were decided as in the recorded run
  }

  run() {
    let ended;
    try {
      ended = this.steps();
    } catch (error) {
      if (!(error instanceof MemoryLimitError)) throw error;
      ended = { event: "RunEnded", step: this.step, reason: "failed", message: error.message };
    }
    const isExact = !this.unknowns.length && this.started.what_if !== "approximate";
    const started = { ...this.started, what_if: isExact ? "exact" : "approximate" };
    return { events: [...this.probed, started, ...this.events, ended], unknowns: this.unknowns };
  }

  steps() {
    while (this.live.length) {
      const decisions = new Map();
      for (const { path, recorded } of this.live) {
        const decision = this.trace.decision(this.step, recorded);
        if (!decision) return this.cutShort();
        decisions.set(path, decision);
      }
      const tokens = this.pass();
      this.decide(decisions);
      this.timed(tokens, this.step - 1);
    }
    return { event: "RunEnded", step: this.step, reason: "finished" };
  }

  /** End where the recorded run ended with live paths. */
  cutShort() {
    const reason = this.trace.run.ended?.reason;
    if (reason === "failed") this.prepare();
    const isSame =
      reason === "stopped" || reason === "unwatched" || (this.same && reason === "decided");
    if (isSame) return { event: "RunEnded", step: this.step, reason };
    for (const { path } of this.live) this.unknown(path, "ended", Math.max(0, this.step - 1));
    return { event: "RunEnded", step: this.step, reason: "stopped" };
  }

  /** Compute what is pending, the prompt in chunks or a token of each live path; returns how many. */
  pass() {
    const prompt = this.started.prompt_tokens.length;
    let tokens = this.prepare();
    for (; !this.step && this.computed < prompt; tokens = this.prepare()) this.timed(tokens);
    const usage = this.rows.usage(this.live.map(({ path }) => path));
    this.events.push({ event: "KvMeasured", step: this.step, usage });
    return tokens;
  }

  /** @param {number} tokens of a pass */
  timed(tokens, step = this.step) {
    this.events.push({ event: "StepTimed", step, tokens, seconds: 0, forward_seconds: 0 });
  }

  /** Reserve rows for the next pass; returns how many tokens it computes. */
  prepare() {
    const { config, rows, step } = this;
    const { max_new_tokens: most, max_paths: limit } = config;
    const prompt = this.started.prompt_tokens.length;
    const chunk = Math.max(MIN_PREFILL_CHUNK, Math.floor(MAX_CELLS / prompt));
    const each = step ? 1 : Math.min(PREFILL_CHUNK, chunk, prompt - this.computed);
    const paths = this.live.map(({ path }) => path);
    const first = rows.reserve(reservedRows(this.started, limit), most - step);
    for (const growth of [...first, ...rows.prepare(paths, each)]) {
      this.events.push({ event: "RowsAllocated", step, growth });
    }
    this.computed += each;
    return each * paths.length;
  }

  /** @param {Map<number, Decision>} decisions by path */
  decide(decisions) {
    const { step } = this;
    const predictions = this.live.map(({ path }) => {
      return [path, .../** @type {Decision} */ (decisions.get(path)).predicted.slice(1)];
    });
    this.events.push({ event: "Predicted", step, predictions });
    this.same &&= this.live.every(({ path, weight }) => {
      const decision = /** @type {Decision} */ (decisions.get(path));
      return this.wouldFork(decision, weight) === this.wouldHaveForked(decision);
    });
    const families = this.leaves.map((leaf) => {
      const decision = decisions.get(leaf.path);
      return this.same ? this.recorded(leaf, decision) : this.derived(leaf, decision);
    });
    if (!this.same) this.prune(families.flat());
    const finished = (/** @type {Leaf} */ leaf) =>
      this.trace.finished.get(`${step} ${leaf.recorded}`);
    this.events.push(...this.commit(families, finished));
  }

  /**
   * The rule of the policy `fair`; others ignore the threshold or keep the recorded one.
   * @param {Decision} decision @param {number} weight @param {number} threshold
   */
  mayFork({ predicted: [, entropy] }, weight, threshold) {
    const { policy, min_fork_weight: least = 0 } = this.config;
    return policy === "fair" && (entropy ?? 0) >= threshold && weight >= least;
  }

  /** @param {Decision} decision @param {number} weight */
  wouldFork(decision, weight) {
    return this.mayFork(decision, weight, this.started.threshold_nats);
  }

  /** @param {Decision} decision */
  wouldHaveForked(decision) {
    return this.mayFork(decision, decision.weight, this.trace.run.started.threshold_nats);
  }

  /**
   * The recorded outcome, path limit included, as long as all steps were the same.
   * @param {Leaf} leaf @param {Decision | undefined} decision @returns {Member[]}
   */
  recorded(leaf, decision) {
    if (!decision) {
      const after = this.trace.changes.get(`${this.step} ${leaf.recorded}`);
      return [itself(leaf, after === undefined ? leaf.weight : after)];
    }
    const { dropped, weights, tokens } = decision;
    const lost = dropped.length || tokens.length ? dropped : [-1];
    return [
      ...children(leaf, decision, weights),
      ...lost.map((token) => {
        return { leaf, token: [token], weight: null, heir: false, becomes: {} };
      }),
    ];
  }

  /**
   * The outcome of the recorded decision for a path whose weight or history now differs.
   * @param {Leaf} leaf @param {Decision | undefined} decision @returns {Member[]}
   */
  derived(leaf, decision) {
    if (!decision) return [itself(leaf)];
    if (!decision.tokens.length) {
      this.unknown(leaf.path, "dropped");
      this.cache.release(leaf.path);
      return [itself({ ...leaf, finished: true })];
    }
    if (!this.wouldFork(decision, leaf.weight)) return [this.unforked(leaf, decision)];
    if (!this.wouldHaveForked(decision)) {
      this.unknown(leaf.path, "fork");
      return [this.unforked(leaf, decision)];
    }
    const sum = fsum(decision.weights);
    const isLimited = decision.dropped.length > 0 || !isClose(sum, decision.weight, 1e-9);
    if (isLimited) this.unknown(leaf.path, "limit");
    const total = isLimited ? sum : decision.weight;
    const weights = decision.weights.map((weight) => (leaf.weight * weight) / total);
    return children(leaf, decision, weights);
  }

  /**
   * The child that would have followed without a fork.
   * @param {Leaf} leaf @param {Decision} decision @returns {Member}
   */
  unforked(leaf, decision) {
    const { weights } = decision;
    if (decision.heir === null) this.unknown(leaf.path, "heir");
    const heir = decision.heir ?? weights.indexOf(Math.max(...weights));
    return { ...children(leaf, decision, weights)[heir], weight: leaf.weight, heir: true };
  }

  /** @param {number} path @param {Unknown["why"]} why */
  unknown(path, why, step = this.step) {
    this.unknowns.push({ step, path, why });
  }
}

/** @param {Leaf} leaf @param {Decision} decision @param {number[]} weights @returns {Member[]} */
function children(leaf, { heir, tokens, paths }, weights) {
  return tokens.map(([, id, text, logProb, special], at) => {
    const token = [id, text, logProb ?? 0, special];
    const becomes = { recorded: paths[at] };
    return { leaf, token, weight: weights[at], heir: at === heir, becomes };
  });
}
