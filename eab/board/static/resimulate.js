// A finished run at another threshold or growth step r, computed from its events: the same as
// eab/what_if/resimulate.py, which drives the engine itself through the recorded decisions. Here
// are the parts of the engine that a decided run needs: paths, weights, path limit, rows.

/** @import { RunEvent, Unknown } from "./types.d.ts" */
/** @import { Decision, Trace } from "./trace.js" */
import { fsum } from "./fsum.js";
import { KvRows, MemoryLimitError, tensorRows } from "./kv_rows.js";
import { fearnheadClifford, isClose } from "./path_limit.js";
import { pruningUniform } from "./random_streams.js";

const PREFILL_CHUNK = 512; // tokens
const MIN_PREFILL_CHUNK = 16;
const MAX_CELLS = 2 ** 23; // the tokens of a chunk times the rows they see
const MIB = 2 ** 20;

/**
 * A live or finished path. recorded: the recorded path that it follows.
 * @typedef {{ path: number, weight: number, finished: boolean, recorded: number }} Leaf
 *
 * One continuation of a leaf by a token, or the leaf itself, with its weight after the step; null:
 * dropped. token: as in a Decision; null: the leaf.
 * @typedef {{ leaf: Leaf, token: any[] | null, recorded: number, weight: number | null, heir: boolean }} Member
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
 * Whether a run can be recomputed here: its cache has only KV rows, of a known size.
 * @param {RunEvent} started
 */
export function canBeResimulated({ model, config }) {
  const row = tensorRows(model).reduce((sum, bytes) => sum + bytes, 0);
  return (
    !model.own_memory && row > 0 && row === model.row_bytes && Number.isSafeInteger(config.seed)
  );
}

class Resimulator {
  /** @param {Trace} trace @param {RunEvent} started @param {boolean} probes */
  constructor(trace, started, probes) {
    this.trace = trace;
    this.started = started;
    this.config = started.config;
    this.probed = (probes ? trace.run.probe : []).map((entropy, step) => {
      return { event: "Probed", step, entropy };
    });
    /** @type {RunEvent[]} */
    this.events = [];
    /** @type {Unknown[]} */
    this.unknowns = [];
    /** @type {Leaf[]} */
    this.leaves = [{ path: 0, weight: 1, finished: false, recorded: 0 }]; // in tree order
    this.born = 1; // paths so far
    this.step = 0;
    this.computed = 0; // tokens of the prompt
    this.tokens = 0; // of the last pass
    this.same = true; // whether all steps so far were decided as in the recorded run
    this.cache = new KvRows(started.model, this.config.r, this.config.kv_limit_mib * MIB);
  }

  get live() {
    return this.leaves.filter(({ finished }) => !finished);
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
      this.pass();
      this.decide(decisions);
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

  /** Compute what is pending: the prompt in chunks, later a token of each live path. */
  pass() {
    const prompt = this.started.prompt_tokens.length;
    for (;;) {
      const tokens = this.prepare();
      this.computed += tokens;
      this.tokens = tokens;
      if (this.step > 0 || this.computed >= prompt) break;
      this.timed(tokens);
    }
    const usage = this.cache.usage(this.live.map(({ path }) => path));
    this.events.push({ event: "KvMeasured", step: this.step, usage });
  }

  /** @param {number} tokens of a pass */
  timed(tokens, step = this.step) {
    this.events.push({ event: "StepTimed", step, tokens, seconds: 0, forward_seconds: 0 });
  }

  /** Reserve rows for the next pass; returns how many tokens it computes. */
  prepare() {
    const { config, cache, step } = this;
    const { max_new_tokens: most, max_paths: limit, r } = config;
    const prompt = this.started.prompt_tokens.length;
    const upFront = r !== "auto" && r >= most ? limit * (most - 1) : 0;
    const chunk = Math.max(MIN_PREFILL_CHUNK, Math.floor(MAX_CELLS / prompt));
    const each = step ? 1 : Math.min(PREFILL_CHUNK, chunk, prompt - this.computed);
    const paths = this.live.map(({ path }) => path);
    const first = cache.reserve(prompt + upFront, most - step);
    for (const growth of [...first, ...cache.prepare(paths, each)]) {
      this.events.push({ event: "RowsAllocated", step, growth });
    }
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
    this.commit(families);
    this.timed(this.tokens, step);
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
        return { leaf, token: [0, token], recorded: 0, weight: null, heir: false };
      }),
    ];
  }

  /**
   * The outcome of the recorded decision for a path whose weight or history now differs.
   * @param {Leaf} leaf @param {Decision | undefined} decision @returns {Member[]}
   */
  derived(leaf, decision) {
    if (!decision) return [itself(leaf, leaf.weight)];
    if (!decision.tokens.length) {
      this.unknown(leaf.path, "dropped");
      this.cache.release(leaf.path);
      return [itself({ ...leaf, finished: true }, leaf.weight)];
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
    const { weights, tokens, paths } = decision;
    if (decision.heir === null) this.unknown(leaf.path, "heir");
    const heir = decision.heir ?? weights.indexOf(Math.max(...weights));
    return { leaf, token: tokens[heir], recorded: paths[heir], weight: leaf.weight, heir: true };
  }

  /** Keep at most max_paths of all members. @param {Member[]} members */
  prune(members) {
    if (members.length <= this.config.max_paths) return;
    const uniform = pruningUniform(this.config.seed, this.step);
    const weights = members.map(({ weight }) => weight ?? 0);
    const after = fearnheadClifford(weights, this.config.max_paths, uniform);
    members.forEach((member, at) => {
      member.weight = after[at];
    });
  }

  /** End the step (eab/engine/paths.py). @param {Member[][]} families of the leaves, in order */
  commit(families) {
    const { step } = this;
    const after = new StepEvents(step);
    this.leaves = families.flatMap((family) => this.commitPath(family, after));
    for (const leaf of this.leaves) this.finish(leaf, after);
    this.events.push(...after.events());
    this.step += 1;
  }

  /** Drop, keep, extend or fork a path. @param {Member[]} family @param {StepEvents} after @returns {Leaf[]} */
  commitPath(family, after) {
    const { leaf, token } = family[0];
    const kept = family.filter(({ weight }) => weight !== null);
    if (!kept.length) {
      after.pruned.push(leaf.path);
      if (!leaf.finished) this.cache.release(leaf.path);
      return [];
    }
    const [{ weight }] = kept;
    if (!token) return [this.reweighted(leaf, leaf.weight, weight, after)];
    const dropped = family.filter((member) => member.weight === null);
    if (dropped.length) after.dropped.push([leaf.path, dropped.map((member) => member.token?.[1])]);
    if (kept.length > 1) return this.fork(leaf, kept, after);
    after.append(leaf.path, kept[0]);
    return [this.reweighted({ ...leaf, recorded: kept[0].recorded }, leaf.weight, weight, after)];
  }

  /** @param {Leaf} leaf @param {Member[]} kept @param {StepEvents} after @returns {Leaf[]} */
  fork(leaf, kept, after) {
    const leaves = kept.map(({ recorded, weight }) => {
      return { path: this.born++, weight: weight ?? 0, finished: false, recorded };
    });
    leaves.forEach(({ path }, at) => void after.append(path, kept[at]));
    const ids = leaves.map(({ path }) => path);
    const weights = leaves.map(({ weight }) => weight);
    const heir = ids[kept.findIndex((member) => member.heir)] ?? -1;
    after.forked.push({
      event: "Forked",
      step: this.step,
      path: leaf.path,
      children: ids,
      weights,
      heir,
    });
    this.cache.fork(leaf.path, ids);
    return leaves;
  }

  /** @param {Leaf} leaf @param {number} before @param {number | null} weight @param {StepEvents} after */
  reweighted(leaf, before, weight, after) {
    if (weight !== before) after.weights.push([leaf.path, weight]);
    return { ...leaf, weight: weight ?? 0 };
  }

  /** A text ends where the recorded one with the same tokens did. @param {Leaf} leaf @param {StepEvents} after */
  finish(leaf, after) {
    const reason = this.trace.finished.get(`${this.step} ${leaf.recorded}`);
    if (leaf.finished || !reason) return;
    after.finished.push({ event: "PathFinished", step: this.step, path: leaf.path, reason });
    this.cache.release(leaf.path);
    leaf.finished = true;
  }

  /** @param {number} path @param {Unknown["why"]} why */
  unknown(path, why, step = this.step) {
    this.unknowns.push({ step, path, why });
  }
}

/** What happens in a step, in the order of its events (eab/engine/step_events.py). */
class StepEvents {
  /** @param {number} step */
  constructor(step) {
    this.step = step;
    /** @type {any[][]} */
    this.dropped = [];
    /** @type {number[]} */
    this.pruned = [];
    /** @type {RunEvent[]} */
    this.forked = [];
    /** @type {any[][]} */
    this.tokens = [];
    /** @type {any[][]} */
    this.weights = [];
    /** @type {RunEvent[]} */
    this.finished = [];
  }

  /** @param {number} path @param {Member} member */
  append(path, { token }) {
    const [, id, text, logProb, special] = token ?? [];
    this.tokens.push([path, id, text, logProb ?? 0, special]);
  }

  /** @returns {RunEvent[]} */
  events() {
    const { step, dropped, tokens, weights } = this;
    return [
      ...(dropped.length ? [{ event: "LimitActed", step, dropped }] : []),
      ...this.pruned.map((path) => ({ event: "Pruned", step, path })),
      ...this.forked,
      ...(tokens.length ? [{ event: "TokensAppended", step, tokens }] : []),
      ...(weights.length ? [{ event: "Reweighted", step, weights }] : []),
      ...this.finished,
    ];
  }
}

/** A finished leaf as a member of the population. @param {Leaf} leaf @param {number | null} weight @returns {Member} */
function itself(leaf, weight) {
  return { leaf, token: null, recorded: leaf.recorded, weight, heir: false };
}

/** @param {Leaf} leaf @param {Decision} decision @param {number[]} weights @returns {Member[]} */
function children(leaf, { heir, tokens, paths }, weights) {
  return tokens.map((token, at) => {
    return { leaf, token, recorded: paths[at], weight: weights[at], heir: at === heir };
  });
}
