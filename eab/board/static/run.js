// The state of a run after its events, as eab/run does it in Python. Events are those of a run file
// (eab/run/record/run_file.py), and every prefix of the list folds.
//
// Left out are texts that were read after the last step (TextScored) and the state of models that
// keep more than KV rows; pages of such runs come with their message.

/** @import { RunEvent, RunPath, RunStep, RunToken } from "./types.d.ts" */
import { fsum } from "./fsum.js";
import { heldAlone } from "./kv_rows.js";
import { fromBytes, StopStrings, toBytes } from "./token_text.js";

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
        return;
      case "Pruned":
        return void Object.assign(this.paths[event.path], { status: "pruned", touched: step });
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

  /** The paths that forked, in order of birth. */
  forks() {
    return this.paths.filter(({ children }) => children.length > 1);
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
