// A finished run on its board, which recomputes it at another threshold or growth step r by itself.
// The sentences of the message are those of eab/figures/run_comparison.py.

/** @import { Board } from "./board.js" */
/** @import { Run } from "./run.js" */
/** @import { Message, RunEvent, RunStep, StepMessage, Unknown, WhatIfRequest } from "./types.d.ts" */
import { sourceOf } from "./captions.js";
import { counted, fixed, humanBytes, listed } from "./formatting.js";
import { boardMessage, fold } from "./messages.js";
import { canBeResimulated, resimulate, Trace } from "./resimulate.js";

const STEP = 0.01; // nats

/** @type {Record<Unknown["why"], [thing: string, phrase: (count: string) => string]>} */
const REASONS = {
  fork: ["place", (count) => `${count} would fork too`],
  limit: ["fork", (count) => `at ${count}, the path limit dropped some branches`],
  heir: [
    "place",
    (count) => `at ${count}, another token may follow, because the path limit dropped branches`,
  ],
  dropped: ["path", (count) => `${count} that the path limit dropped would continue`],
  ended: ["path", (count) => `${count} would continue after the end of the recorded run`],
};
/** @type {Record<Unknown["why"], string>} */
const MARKS = {
  fork: "Would fork here. Run the model to see the branches.",
  limit: "The path limit dropped some branches here. Run the model to see them.",
  heir: "Another token may follow here. Run the model to see it.",
  dropped:
    "The path limit dropped this path in the recorded run. Run the model to see how it continues.",
  ended: "The recorded run ended here. Run the model to continue.",
};

const OF_SLIDER = "The slider at the side is the threshold of the next run.";
const OWN_MEMORY =
  "This model keeps more than KV rows; only “eab what-if” computes its memory for other settings.";

/** A finished run and its what-ifs. */
export class WhatIf {
  /** @param {RunEvent[]} events */
  constructor(events) {
    this.events = events;
    /** @type {Trace | null} */
    this.known = null;
    const started = events.find(({ event }) => event === "RunStarted");
    if (!started) throw new Error("the run has not started");
    this.started = started;
    const hasTokens = events.some(({ event }) => event === "TokensAppended");
    this.isPossible = hasTokens && canBeResimulated(started);
  }

  /** What the run decided; made when it is first needed, because the first picture does without. */
  get trace() {
    this.known ??= new Trace(this.events);
    return this.known;
  }

  get recorded() {
    return this.trace.run;
  }

  /**
   * The message about the run at these settings.
   * @param {Message} message about the run as recorded @param {WhatIfRequest} request
   * @returns {Message}
   */
  message(message, request) {
    const offers = { ...message.offers, what_if: this.isPossible };
    const { threshold, r } = this.allowed(request);
    if (!this.isPossible || (threshold === null && r === null)) return { ...message, offers };
    try {
      const found = this.at(threshold, r, Boolean(offers.run_at));
      const { run, guide } = message;
      const { what_if, run_at, link, tour } = offers; // the others are of the recorded paths
      const deciding = request.deciding ?? null;
      return { ...found, run, guide, deciding, offers: { what_if, run_at, link, tour } };
    } catch (error) {
      const words = error instanceof Error ? error.message : String(error);
      const notes = { entropy: `The run cannot be recomputed: ${words}.` };
      return { ...message, offers, what_if: "refused", notes };
    }
  }

  /**
   * @param {number | null} threshold @param {number | "auto" | null} r
   * @param {boolean} hasSlider whether the page has a slider for the threshold of the next run
   */
  at(threshold, r, hasSlider) {
    const { events, unknowns } = resimulate(this.trace, threshold, r);
    const run = fold(events);
    const change = [treeChangeSentence(this.recorded, run), exactnessSentence(run, unknowns)];
    if (hasSlider && threshold !== null) change.push(OF_SLIDER);
    const notes = { entropy: `Recomputed from the recording. ${change.join(" ")}` };
    const rows = { memory: `${rowsWords(run)} As recorded: ${rowsWords(this.recorded)}` };
    /** @type {Pick<Message, "mode" | "autoplay" | "cursor">} */
    const still = { mode: "replay", autoplay: false, cursor: null };
    return {
      ...boardMessage(run),
      ...still,
      what_if: `${threshold} ${r}`,
      unknowns: unknowns.map((unknown) => markOf(run, unknown)),
      ...(run.started.model.own_memory
        ? { steps: run.steps.map(withoutMemory), notes: { ...notes, memory: OWN_MEMORY } }
        : { notes: r === null ? notes : { ...notes, ...rows } }),
    };
  }

  /**
   * Settings that can be shown: a threshold from 0 to above all entropies, and a growth step; null
   * where the recorded run has the same.
   * @param {WhatIfRequest} request
   */
  allowed({ threshold, r }) {
    const { config, threshold_nats: recorded } = this.started;
    return { threshold: this.nats(threshold, recorded), r: r === config.r ? null : r };
  }

  /** @param {number | null} threshold @param {number} recorded */
  nats(threshold, recorded) {
    if (threshold === null) return null;
    const own = Number(fixed(recorded, 2));
    const highest = Math.ceil((this.recorded.peaks.at(-1)?.entropy ?? 0) / STEP) * STEP;
    const nats = Number(fixed(Math.min(Math.max(threshold, 0), Math.max(own, highest) + STEP), 2));
    return nats === own ? null : nats;
  }
}

/** @param {RunStep} step @returns {StepMessage} */
function withoutMemory({ step, sentences }) {
  const none = { shared: 0, private: 0, spare: 0, reused: 0, independent: 0, paths: [] };
  const { tree = "", entropy = "" } = sentences ?? {};
  return { step, ...none, sentences: { tree, entropy, memory: "" } };
}

/** How the tree changes with the threshold. @param {Run} recorded @param {Run} run */
function treeChangeSentence(recorded, run) {
  const [before, after] = [recorded.started.threshold_nats, run.started.threshold_nats];
  const [from, to] = [fixed(before, 2), fixed(after, 2)];
  if (before === after) return `Threshold ${from} nats, as recorded: ${sizeOf(run)}.`;
  if (run.started.what_if === "exact" && treeOf(run) === treeOf(recorded)) {
    const [low, high] = before < after ? [from, to] : [to, from];
    return `No fork changes between ${low} and ${high} nats: ${sizeOf(run)}.`;
  }
  return `At ${to} nats: ${sizeOf(run)}; recorded at ${from} nats: ${sizeOf(recorded)}.`;
}

/** Whether running the model would give the same tree; if not, why. @param {Run} run @param {Unknown[]} unknowns */
function exactnessSentence({ started }, unknowns) {
  if (started.what_if === "exact") {
    return (
      "Exact: a run with these settings and this seed gives the same tree, up to the rounding of " +
      `${started.model.dtype}.`
    );
  }
  const remedy = "so this is an approximation; run the model for the exact tree.";
  if (!unknowns.length) return `The source run is itself an approximation, ${remedy}`;
  const reasons = Object.entries(REASONS).flatMap(([why, [thing, phrase]]) => {
    const count = unknowns.filter((unknown) => unknown.why === why).length;
    return count ? [phrase(`${counted(count, thing)} (◇)`)] : [];
  });
  const sentence = `${listed(reasons)}, ${remedy}`;
  return sentence[0].toUpperCase() + sentence.slice(1);
}

/** @param {Run} run */
function rowsWords({ events, steps, started }) {
  const { config, model } = started;
  const growths = events.filter(({ event }) => event === "RowsAllocated");
  const most = (/** @type {string} */ name) =>
    Math.max(0, ...steps.map(({ kv }) => kv?.[name] ?? 0));
  const name = config.cache === "tree" ? `r = ${config.r}` : `cache ${config.cache}`;
  const copied = growths.reduce((sum, { growth }) => sum + growth.rows_copied, 0);
  return (
    `${name} allocates ${counted(growths.length, "time")}, copies ${counted(copied, "row")} ` +
    `(${humanBytes(copied * model.row_bytes)}), has at most ${counted(most("rows_spare"), "spare row")} ` +
    `and holds at most ${humanBytes(most("bytes_held"))} (${sourceOf(started)}).`
  );
}

/**
 * What only the model could tell, at the token of this step, else at the first child's first or the
 * path's own last.
 * @param {Run} run @param {Unknown} unknown
 * @returns {[path: number, token: number, words: string]}
 */
function markOf({ paths }, { step, path: number, why }) {
  const path = paths[number];
  const index = path.tokens.findIndex((token) => token.step === step);
  if (index >= 0) return [path.id, index, MARKS[why]];
  const [child] = path.children;
  return child === undefined
    ? [path.id, path.tokens.length - 1, MARKS[why]]
    : [child, 0, MARKS[why]];
}

/** @param {Run} run */
function treeOf({ paths }) {
  return JSON.stringify(paths.map(({ status, tokens }) => [status, tokens.map(({ id }) => id)]));
}

/** @param {Run} run */
function sizeOf(run) {
  return `${counted(run.forks, "fork")}, ${counted(run.leafCount, "path")}`;
}

const PAUSE_MS = 300; // after which the user has chosen a threshold
/** @type {WhatIfRequest} */
const AS_RECORDED = { threshold: null, r: null };

/** The content of a data block. @param {string | null} packed gzipped, in base64 */
export function unzipped(packed) {
  if (!("DecompressionStream" in globalThis)) {
    throw new Error("This page needs a newer browser: one that can unpack its data.");
  }
  const text = atob(packed ?? "");
  const bytes = new Uint8Array(text.length); // a loop, because `Uint8Array.from` takes ten times as long
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream);
}

/**
 * Show a run, and recompute it when the user moves its threshold.
 * @param {Board} board @param {Message} message
 * @param {WhatIf | null} whatIf of its events; null: it cannot be recomputed here
 */
export function showRun(board, message, whatIf, request = message.asked ?? AS_RECORDED) {
  const show = (/** @type {WhatIfRequest} */ at) => {
    board.update(whatIf?.message(message, at) ?? message);
  };
  board.onWhatIf = show;
  show(request);
  return show;
}

/** Shows the messages of a host in Python, which sends the events of a finished run once. */
export class Shown {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.key = ""; // of the run whose events are known
    this.packed = "";
    /** @type {WhatIf | null} */
    this.whatIf = null;
    /** @type {Message | null} */
    this.latest = null;
    /** What the user asked for, until the host is told. @type {WhatIfRequest | undefined} */
    this.asked = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.pause = undefined;
  }

  /**
   * @param {Message} message
   * @param {string | undefined} packed events of the run, if this message has them
   * @param {(request: WhatIfRequest) => void} [tell] the host what the user asks for
   */
  async update(message, packed, tell) {
    this.latest = message;
    const key = `${message.run} ${message.version}`;
    if (key !== this.key) Object.assign(this, { key, packed: "", whatIf: null, asked: undefined });
    if (packed && packed !== this.packed) {
      const whatIf = new WhatIf(await unzipped(packed).json());
      if (this.key === key) Object.assign(this, { packed, whatIf });
    }
    if (this.latest !== message || this.board.closing.signal.aborted) return;
    const show = showRun(this.board, message, this.whatIf, this.asked);
    if (tell) this.board.onWhatIf = (request) => this.ask(request, show, tell);
  }

  /**
   * Show other settings at once, and tell the host when the user pauses.
   * @param {WhatIfRequest} request
   * @param {(request: WhatIfRequest) => void} show @param {(request: WhatIfRequest) => void} tell
   */
  ask(request, show, tell) {
    if (!this.whatIf) return tell(request);
    this.asked = this.whatIf.allowed(request);
    show(this.asked);
    clearTimeout(this.pause);
    this.pause = setTimeout(() => {
      if (this.asked) tell(this.asked);
      this.asked = undefined;
    }, PAUSE_MS);
  }
}
