// What a board is sent about a finished run at another threshold or growth step r, computed in the
// browser: what eab/share/board_what_if.py and eab/figures/run_comparison.py do in Python.

/** @import { Run } from "./run.js" */
/** @import { Message, Offers, RunEvent, Unknown, WhatIfRequest } from "./types.d.ts" */
import { sourceOf } from "./captions.js";
import { counted, fixed, humanBytes, listed } from "./formatting.js";
import { boardMessage, fold } from "./messages.js";
import { canBeResimulated, resimulate } from "./resimulate.js";
import { Trace } from "./trace.js";

const STEP = 0.01; // nats
const R_STEPS = [1, 2, 4, 8, 16, 32, 64, 128, 256];

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

/** A recorded run and its what-ifs, for one board. */
export class WhatIf {
  /**
   * @param {RunEvent[]} events of a run that has ended
   * @param {Message} message about it, to which the board goes back
   */
  constructor(events, message) {
    this.trace = new Trace(events);
    this.recorded = this.trace.run;
    const { started } = this.recorded;
    const isPossible = this.recorded.ended !== null && canBeResimulated(started);
    /** @type {Offers} */
    this.offers = isPossible ? { what_if: true, growth_steps: growthSteps(started) } : {};
    this.message = { ...message, offers: { ...message.offers, ...this.offers } };
  }

  /** The message for these settings. @param {WhatIfRequest} request @returns {Message} */
  at({ threshold, r }) {
    const { started } = this.recorded;
    const step =
      this.offers.growth_steps?.find((one) => String(one) === String(r)) ?? started.config.r;
    const nats = threshold === null ? null : this.allowed(threshold);
    if (nats === null && step === started.config.r) return this.message;
    const { events, unknowns } = resimulate(this.trace, nats, step);
    const run = fold(events);
    const change = [treeChangeSentence(this.recorded, run), exactnessSentence(run, unknowns)];
    const notes = { entropy: `Recomputed from the recording. ${change.join(" ")}` };
    const rows = { memory: `${rowsWords(run)} As recorded: ${rowsWords(this.recorded)}` };
    const { run: key, offers, guide } = this.message;
    return {
      ...boardMessage(run),
      ...{ run: key, mode: "replay", autoplay: false, cursor: null, offers, guide },
      what_if: `${nats} ${step}`,
      unknowns: unknowns.map((unknown) => [...tokenAt(run, unknown), MARKS[unknown.why]]),
      notes: step === started.config.r ? notes : { ...notes, ...rows },
    };
  }

  /** The recorded run again, and why there is no other. @param {unknown} error @returns {Message} */
  refused(error) {
    const words = error instanceof Error ? error.message : String(error);
    const notes = { entropy: `The run cannot be recomputed: ${words}.` };
    return { ...this.message, what_if: "refused", notes };
  }

  /** A threshold from 0 to above all entropies; null if it is the recorded one. @param {number} asked */
  allowed(asked) {
    const own = Number(fixed(this.recorded.started.threshold_nats, 2));
    const highest = Math.ceil((this.recorded.peaks.at(-1)?.entropy ?? 0) / STEP) * STEP;
    const nats = Number(fixed(Math.min(Math.max(asked, 0), Math.max(own, highest) + STEP), 2));
    return nats === own ? null : nats;
  }
}

/** @param {RunEvent} started @returns {(number | string)[]} */
function growthSteps({ config }) {
  const numbers = [...new Set([...R_STEPS, config.r])].filter((r) => r !== "auto");
  return ["auto", ...numbers.sort((a, b) => a - b)];
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
  const remedy =
    "so this is an approximation; run the model with these settings for the exact tree.";
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
 * Path and index of the token at this step, else of the first child's first or its own last.
 * @param {Run} run @param {Unknown} unknown @returns {[path: number, token: number]}
 */
function tokenAt({ paths }, { step, path: number }) {
  const path = paths[number];
  const index = path.tokens.findIndex((token) => token.step === step);
  if (index >= 0) return [path.id, index];
  return path.children.length ? [path.children[0], 0] : [path.id, path.tokens.length - 1];
}

/** @param {Run} run */
function treeOf({ paths }) {
  return JSON.stringify(paths.map(({ status, tokens }) => [status, tokens.map(({ id }) => id)]));
}

/** @param {Run} run */
function sizeOf(run) {
  return `${counted(run.forks().length, "fork")}, ${counted(run.leaves().length, "path")}`;
}
