// The state of a run after its events, as eab/run does it in Python. Events are those of a run file
// (eab/run/record/run_file.py), and every prefix of the list folds.
//
// Left out are texts that were read after the last step (TextScored) and the state of models that
// keep more than KV rows; pages of such runs come with their message.
//
// Beside it the books of the tree cache (eab/engine/caches/tree.py and growth.py), without K and V:
// which rows its tensors hold, and which of them several live paths read.

/** @import { RunEvent, RunPath, RunStep, RunToken } from "./types.d.ts" */
import { fromBytes, StopStrings, toBytes } from "./formatting.js";
import { fsum } from "./population.js";

const SLACK_DIVISOR = 4; // with r = "auto", tensors grow by a quarter of the rows in use,
const LEAST_STEPS = 4; // at least by the rows of these steps
const LEAST_GIVEN_BACK = 512; // rows by which tensors shrink
const MIB = 2 ** 20;
/** @type {Record<string, number>} */
const ITEM_BYTES = { float64: 8, float32: 4, bfloat16: 2, float16: 2 };

/** Bytes of a row in each tensor, keys first. @param {RunEvent} card of the model @returns {number[]} */
export function tensorRows(card) {
  const { layers, kv_heads: heads, head_dim: size, layer_rows: rows } = card;
  const each = rows?.length ? rows : Array(layers).fill([heads, size, size]);
  const item = card.own_memory ? 0 : (ITEM_BYTES[card.dtype] ?? 0);
  return [1, 2].flatMap((at) => each.map((/** @type {number[]} */ row) => row[0] * row[at] * item));
}

/**
 * Rows that the tensors hold in any case: of the prompt, and if r covers all steps, of these paths.
 * @param {RunEvent} started @param {number} paths
 */
export function reservedRows({ prompt_tokens: prompt, config }, paths) {
  const { r, max_new_tokens: most } = config;
  return prompt.length + (r !== "auto" && r >= most ? paths * (most - 1) : 0);
}

/** The cache needs more than it may. */
export class MemoryLimitError extends Error {}

/**
 * Rows that belong together: those of the tokens of one path. readers: live paths that see them.
 * @typedef {{ rows: number, readers: number, before: Segment | null }} Segment
 */

export class KvRows {
  /**
   * @param {RunEvent} card of the model @param {number | "auto"} r growth step
   * @param {number} byteLimit
   */
  constructor(card, r, byteLimit = Number.POSITIVE_INFINITY) {
    this.rowBytes = card.row_bytes;
    this.tensors = tensorRows(card);
    this.r = r;
    this.byteLimit = byteLimit;
    this.held = 0; // rows that the tensors hold
    this.used = 0;
    this.reserved = 0;
    this.stepsLeft = 0;
    this.totals = { bytes_copied: 0, allocations: 0, peak_bytes: 0 };
    /** @type {Map<number, Segment>} */
    this.ends = new Map([[0, { rows: 0, readers: 1, before: null }]]); // of the live paths
  }

  /** The segments that a live path reads. @param {number} path */
  *segments(path) {
    for (let at = this.ends.get(path) ?? null; at; at = at.before) yield at;
  }

  /** Hold at least these rows. @param {number} rows @param {number} steps that may follow */
  reserve(rows, steps) {
    this.stepsLeft = steps;
    this.reserved = rows;
    return rows > this.held ? [this.grow(rows)] : [];
  }

  /**
   * Rows for new tokens; returns the growths.
   * @param {number[]} paths @param {number} each how many tokens each path gets
   */
  prepare(paths, each) {
    const growths = [];
    const needed = this.used + each * paths.length;
    const ahead = this.ahead(paths.length);
    const least = Math.max(this.reserved, needed);
    const wanted = Math.max(this.reserved, needed + ahead);
    if (this.held - Math.max(2 * least, wanted) > LEAST_GIVEN_BACK) {
      growths.push(this.reallocate(this.used, wanted));
    }
    const missing = needed - this.held;
    if (missing > 0) {
      const allowed = Math.floor(this.byteLimit / this.rowBytes) - this.held;
      const fillable = this.stepsLeft * paths.length - (each * paths.length - missing);
      const more = Math.max(Math.min(ahead, allowed, fillable), missing);
      growths.push({ ...this.grow(this.held + more), r: Math.floor(ahead / paths.length) });
    }
    for (const path of paths) /** @type {Segment} */ (this.ends.get(path)).rows += each;
    this.used = needed;
    return growths;
  }

  /** The rows of r steps. @param {number} paths */
  ahead(paths) {
    const auto = Math.max(LEAST_STEPS, Math.floor(this.used / (SLACK_DIVISOR * paths)));
    return paths * Math.min(this.r === "auto" ? auto : this.r, this.stepsLeft);
  }

  /** @param {number} rows */
  grow(rows) {
    const bytes = rows * this.rowBytes;
    if (bytes > this.byteLimit) {
      throw new MemoryLimitError(
        `the KV cache needs ${(bytes / MIB).toFixed(0)} MiB; kv_limit_mib allows ` +
          `${(this.byteLimit / MIB).toFixed(0)}. Use fewer paths or new tokens, a smaller r, or a ` +
          "higher kv_limit_mib",
      );
    }
    return this.reallocate(this.held, rows);
  }

  /** Copy rows to new tensors, one tensor at a time. @param {number} kept @param {number} rows */
  reallocate(kept, rows) {
    const { totals } = this;
    let live = this.held * this.rowBytes;
    for (const bytes of this.tensors) {
      live += rows * bytes;
      totals.peak_bytes = Math.max(totals.peak_bytes, live);
      live -= this.held * bytes;
    }
    totals.bytes_copied += kept * this.rowBytes;
    totals.allocations += this.tensors.length;
    this.held = rows;
    const copied = { rows_copied: kept, bytes_copied: kept * this.rowBytes };
    return { rows, ...copied, peak_bytes: totals.peak_bytes };
  }

  /** End a path; its children see its rows. @param {number} path @param {number[]} children */
  fork(path, children) {
    const before = /** @type {Segment} */ (this.ends.get(path));
    for (const segment of this.segments(path)) segment.readers += children.length - 1;
    this.ends.delete(path);
    for (const child of children) this.ends.set(child, { rows: 0, readers: 1, before });
  }

  /** End a path; rows that no other path sees become free. @param {number} path */
  release(path) {
    for (const segment of this.segments(path)) {
      segment.readers -= 1;
      if (!segment.readers) this.used -= segment.rows;
    }
    this.ends.delete(path);
  }

  /** The rows held, with the share of each of these live paths. @param {number[]} paths */
  usage(paths) {
    let [rowsShared, rowsIndependent] = [0, 0];
    const seen = new Set();
    const rows = paths.map((path) => {
      let [shared, own] = [0, 0];
      for (const segment of this.segments(path)) {
        if (segment.readers > 1) shared += segment.rows;
        else own += segment.rows;
        if (segment.readers > 1 && !seen.has(segment)) rowsShared += segment.rows;
        seen.add(segment);
      }
      rowsIndependent += shared + own;
      return [path, shared, own];
    });
    return {
      bytes_held: this.held * this.rowBytes,
      rows_shared: rowsShared,
      rows_private: this.used - rowsShared,
      rows_spare: this.held - this.used,
      rows_independent: rowsIndependent,
      paths: rows,
      ...this.totals,
    };
  }
}

/**
 * Rows that the cache of a single path holds after each number of new tokens.
 * @param {RunEvent} started @returns {number[]}
 */
function heldAlone(started) {
  const { prompt_tokens: prompt, model, config } = started;
  const cache = new KvRows(model, config.r);
  return Array.from({ length: config.max_new_tokens }, (_, step) => {
    cache.reserve(reservedRows(started, 1), config.max_new_tokens - step);
    cache.prepare([0], step ? 1 : prompt.length);
    return cache.held;
  });
}

export class Run {
  constructor() {
    /** The header; null while the prompt is probed. @type {RunEvent | null} */
    this.header = null;
    /** @type {number[]} */
    this.probe = []; // entropies (nats) of the greedy probe
    /** @type {RunEvent | null} */
    this.ended = null;
    /** @type {RunEvent[]} */
    this.events = [];
    /** @type {RunPath[]} */
    this.paths = [newPath(0, -1, [[0, 1]], true, 0, 1)];
    /** @type {RunStep[]} */
    this.steps = [];
    /** The last step with the most live paths. @type {RunStep | null} */
    this.widest = null;
    /** What `heldAlone` says; made when it is first needed. @type {number[] | null} */
    this.rowsAlone = null;
    /** Tokens of higher entropy than all before them. @type {RunToken[]} */
    this.peaks = [];
    // The captions of each step need these; a large run has thousands of steps and paths.
    this.forks = 0;
    this.leafCount = 1;
    /** The first and the last step at which the path limit dropped branches, or -1. */
    this.limited = { first: -1, last: -1 };
    this.predictedStep = -1;
    /** Of that step, by path. @type {Map<number, any[]>} */
    this.predicted = new Map();
    /** What the search for stop strings found, by path. @type {Map<number, { tail: string, cut: number }>} */
    this.tails = new Map();
    /** @type {StopStrings | null} */
    this.stop = null;
  }

  /** The header: prompt, model, settings. @returns {RunEvent} */
  get started() {
    if (!this.header) throw new Error("the run has not started");
    return this.header;
  }

  /** Rows that a cache for one path holds, by its number of new tokens. */
  get alone() {
    this.rowsAlone ??= heldAlone(this.started);
    return this.rowsAlone;
  }

  /** @param {RunEvent} event */
  apply(event) {
    this.events.push(event);
    const { step } = event;
    switch (event.event) {
      case "Probed":
        return void this.probe.push(event.entropy);
      case "RunStarted":
        this.header = event;
        if (event.config.stop?.length) this.stop = new StopStrings(event.config.stop);
        return;
      case "Predicted":
        return this.predict(event);
      case "TokensAppended":
        return this.append(event);
      case "Forked":
        return this.fork(event);
      case "LimitActed":
        for (const [path] of event.dropped) this.paths[path].limitedSteps.push(step);
        if (event.dropped.length) this.limit(step);
        return;
      case "Pruned":
        Object.assign(this.paths[event.path], { status: "pruned", touched: step });
        this.leafCount -= 1;
        return this.limit(step);
      case "Reweighted":
        for (const [path, weight] of event.weights) this.reweight(path, step, weight);
        return;
      case "PathFinished":
        return this.finish(event);
      case "KvMeasured":
        this.stepAt(step).kv = event.usage;
        if (event.usage.paths.length >= (this.widest?.kv?.paths.length ?? 0))
          this.widest = this.stepAt(step);
        return;
      case "RowsAllocated":
      case "StepTimed":
        return void this.stepAt(step);
      case "RunEnded":
        this.ended = event;
    }
  }

  /** @param {number} step @returns {RunStep} */
  stepAt(step) {
    this.steps[step] ??= { step, kv: null, sentences: null };
    return this.steps[step];
  }

  /** The path limit dropped branches. @param {number} step */
  limit(step) {
    if (this.limited.first < 0) this.limited.first = step;
    this.limited.last = step;
  }

  /** @param {number} path @param {number} step @param {number} weight */
  reweight(path, step, weight) {
    this.paths[path].weights.push([step, weight]);
    this.paths[path].touched = step;
  }

  /** @param {RunEvent} event */
  predict({ step, predictions }) {
    if (step !== this.predictedStep) this.predicted = new Map();
    this.predictedStep = step;
    for (const seen of predictions) {
      this.predicted.set(seen[0], seen);
      this.paths[seen[0]].touched = step;
    }
  }

  /** @param {RunEvent} event */
  append({ step, tokens }) {
    for (const [number, id, text, logProb, special] of tokens) {
      const path = this.paths[number];
      const origin = path.tokens.length || path.parent < 0 ? number : path.parent;
      const [, entropy, candidates, whole] = this.predicted.get(origin) ?? [0, null, [], null];
      const kept = text;
      const token = { step, id, text, special, logProb, entropy, candidates, whole, kept };
      path.tokens.push(token);
      path.touched = step;
      if (entropy > (this.peaks.at(-1)?.entropy ?? Number.NEGATIVE_INFINITY))
        this.peaks.push(token);
      if (!this.stop || special) continue;
      this.tails.set(number, this.stop.search(this.tails.get(number)?.tail ?? "", text));
    }
  }

  /** @param {RunEvent} event */
  fork({ step, path, children, weights, heir }) {
    const parent = this.paths[path];
    const total = fsum(weights);
    Object.assign(parent, { status: "forked", children, touched: step });
    this.forks += Number(children.length > 1);
    this.leafCount += children.length - 1;
    children.forEach((/** @type {number} */ child, /** @type {number} */ at) => {
      const share = total > 0 ? weights[at] / total : 0;
      this.paths.push(newPath(child, path, [[step, weights[at]]], child === heir, step, share));
      this.tails.set(child, { tail: this.tails.get(path)?.tail ?? "", cut: 0 });
    });
  }

  /** @param {RunEvent} event */
  finish({ step, path: number, reason }) {
    const path = this.paths[number];
    Object.assign(path, { status: "finished", finishReason: reason, touched: step });
    path.cut = this.stop ? (this.tails.get(number)?.cut ?? 0) : 0;
    let left = path.cut; // bytes
    for (const token of path.tokens.toReversed()) {
      if (left <= 0) return;
      const raw = token.special ? [] : toBytes(token.text);
      token.kept = fromBytes(raw.slice(0, Math.max(0, raw.length - left)));
      left -= raw.length;
    }
  }

  /** The live and finished paths, in order of birth. */
  leaves() {
    return this.paths.filter(({ status }) => status === "live" || status === "finished");
  }

  /** The measurement with the most distinct rows in use. */
  peakKv() {
    const rows = (/** @type {RunEvent} */ kv) => kv.rows_shared + kv.rows_private;
    /** @type {RunEvent | null} */
    let most = null;
    for (const { kv } of this.steps) {
      if (!kv) continue;
      const more = most ? rows(kv) - rows(most) : 1;
      if (more > 0 || (!more && kv.rows_independent > most?.rows_independent)) most = kv;
    }
    return most;
  }
}

/**
 * @param {number} id @param {number} parent @param {[number, number][]} weights
 * @param {boolean} heir @param {number} touched @param {number} share
 * @returns {RunPath}
 */
function newPath(id, parent, weights, heir, touched, share) {
  const lists = { tokens: [], children: [], limitedSteps: [] };
  const open = { status: /** @type {const} */ ("live"), finishReason: null, cut: 0 };
  return { id, parent, weights, heir, touched, share, ...lists, ...open };
}
