// Sentences about a run, the same as those of eab/figures/captions.py and kv_memory.py.

/** @import { Run } from "./run.js" */
/** @import { RunEvent } from "./types.d.ts" */
import { apart, counted, excerpt, fixed, humanBytes, percentage, visible } from "./formatting.js";

const PROMPT_LONGEST = 120; // characters
const NO_NUMBERS = /[^\p{L}\p{N}\p{M}]+/gu;

/** The captions of tree, entropy trace and KV bars. @param {Run} run */
export function captions(run) {
  const when = `At the peak (${sourceOf(run.started)}), `;
  const memory = memoryWords(run, run.peakKv(), when);
  return { tree: treeWords(run), entropy: entropyWords(run), memory };
}

/** The same, but that of the KV bars tells of the last step so far. @param {Run} run */
export function captionsNow(run) {
  return { tree: treeWords(run), entropy: entropyWords(run), memory: memoryWordsNow(run) };
}

/** @param {Run} run */
function treeWords(run) {
  if (!run.steps.length) return "Nothing generated yet.";
  const { forks, leafCount } = run;
  if (!forks) return noForkWords(run);
  const { first: limited } = run.limited;
  const isOver = limited >= 0 && run.ended !== null;
  const leaves = (isOver && equalWords(run)) || counted(leafCount, "path");
  const words = `${counted(forks, "fork")} in ${counted(run.steps.length, "step")}: ${leaves}.`;
  if (limited < 0) return words;
  const limit = run.started.config.max_paths;
  return `${words} From step ${limited} on, the path limit (${limit}) drops branches.`;
}

/** Why a text's weight is not the product of its shares; "" if it is. @param {Run} run */
export function limitSentence(run) {
  const { policy, max_paths: limit } = run.started.config;
  if (policy in NO_PRODUCT) return NO_PRODUCT[policy];
  const { first, last } = run.limited;
  if (first < 0) return "";
  const when = first === last ? `at step ${first}` : `from step ${first} to step ${last}`;
  return (
    `The path limit (${limit}) dropped branches ${when}; their weight passed to the paths that ` +
    "were kept, so the weight of a text is not the product of its shares."
  );
}

/** @type {Record<string, string>} */
const NO_PRODUCT = {
  "stochastic-beam":
    "With the policy stochastic-beam, the weight of a text depends on its probability and on the " +
    "chance of drawing it, so it is not the product of its shares.",
  beam:
    "With the policy beam, the weight of a text is its probability. That of dropped texts is not " +
    "passed on, so the weights sum to less than 100%.",
  original:
    "With the policy original, all texts have equal weight, so a weight is not the product of its " +
    "shares.",
};

/** @param {Run} run */
function equalWords(run) {
  const weights = run.leaves().map((leaf) => leaf.weights.at(-1)?.[1] ?? 0);
  const [low, high] = [Math.min(...weights), Math.max(...weights)];
  if (weights.length < 2 || high - low > 1e-6 * high) return "";
  let seen = weights.length + run.paths.filter(({ status }) => status === "pruned").length;
  for (const { event, dropped } of run.events) {
    if (event !== "LimitActed") continue;
    for (const [, tokens] of dropped) seen += tokens.length;
  }
  return `${weights.length} texts of equal weight, drawn from ${seen} seen`;
}

/** @param {Run} run */
function noForkWords(run) {
  const highest = run.peaks.at(-1);
  if (!highest) return "No fork yet.";
  const { config, threshold_nats: threshold, what_if: whatIf } = run.started;
  const { policy, max_paths: limit, min_fork_weight: least = 0 } = config;
  if (policy !== "fair" && policy !== "original") {
    return `No fork: the policy ${policy} does not use the threshold.`;
  }
  const entropy = highest.entropy ?? 0;
  const reached = `the entropy reached ${fixed(entropy, 2)} nats (threshold ${fixed(threshold, 2)})`;
  if (entropy >= threshold && whatIf) {
    return `No fork was recorded, but ${reached}. Run the model to see these forks.`;
  }
  if (entropy >= threshold) {
    return (
      `No fork, although ${reached}: the policy (${policy}), the path limit (${limit}) or the ` +
      `minimum weight to fork (${percentage(least, 1)}) prevented it.`
    );
  }
  const [below, above] = apart(entropy, threshold);
  const compared = `the highest entropy was ${below} nats, the threshold is ${above}.`;
  if (!run.ended) return `No fork so far: ${compared}`;
  return `No fork: ${compared} Lower the threshold to get forks.`;
}

/** @param {Run} run */
function entropyWords({ started, peaks }) {
  const highest = peaks.at(-1);
  if (!highest) return "No entropy measured yet.";
  const entropy = highest.entropy ?? 0;
  const number = Math.exp(entropy);
  const options =
    number < 1.05
      ? "like a single option"
      : `like ${fixed(number, number < 10 ? 1 : 0)} equally likely options`;
  return (
    `Highest entropy ${fixed(entropy, 2)} nats, ${options}, at step ${highest.step}; the threshold ` +
    `is ${fixed(started.threshold_nats, 2)} nats.`
  );
}

// ---- KV memory

/** Whether bytes are measured or computed. @param {RunEvent} started */
export function sourceOf(started) {
  return started.what_if ? "computed" : "measured";
}

/** Bytes that separate caches would hold, one for each live path. @param {Run} run @param {RunEvent} kv */
export function separateBytes({ started: { model, prompt_tokens: prompt }, alone }, kv) {
  const lengths = kv.paths.map((/** @type {number[]} */ [, shared, own]) => {
    return alone[shared + own - prompt.length] ?? shared + own;
  });
  let bytes = 0;
  for (const length of lengths) {
    bytes += length * model.row_bytes;
    for (const [tokens, row] of model.window_rows ?? [])
      bytes -= Math.max(0, length - tokens) * row;
  }
  return bytes;
}

/** The caption of the KV bars after the last step so far. @param {Run} run */
function memoryWordsNow(run) {
  const [last, widest] = [run.steps.at(-1), run.widest];
  // the tree shows the paths after the fork, but the pass had the paths before it
  const newest = run.paths.at(-1);
  const hasForked = newest && newest.parent >= 0 && newest.weights[0][0] === last?.step;
  const words = memoryWords(run, last?.kv ?? null, hasForked ? "Before the fork, " : "");
  const most = widest?.kv?.paths.length;
  if (!last?.kv || !widest?.kv || last.kv.paths.length === most) return words;
  const ratio = asMuch(separateBytes(run, widest.kv) / widest.kv.bytes_held);
  return `${words} At step ${widest.step}, ${most} separate caches would need ${ratio}.`;
}

/** @param {Run} run @param {RunEvent | null} kv @param {string} when */
function memoryWords(run, kv, when) {
  if (!kv) return "No KV cache yet.";
  const { rows_reused: reused = 0, other_runs: others = 0 } = kv;
  const words = heldWords(run, kv, when, separateBytes(run, kv));
  if (!reused) return words;
  const readers = others ? `, read by ${counted(others, "other run")}, too` : "";
  const held = humanBytes(reused * run.started.model.row_bytes);
  return `${words} Of the KV held, ${held} is in the prefix cache${readers}.`;
}

/** @param {Run} run @param {RunEvent} kv @param {string} when @param {number} separate bytes */
function heldWords(run, kv, when, separate) {
  const [paths, held] = [counted(kv.paths.length, "live path"), humanBytes(kv.bytes_held)];
  const reserved = `${humanBytes(kv.rows_spare * run.started.model.row_bytes)} of it reserved`;
  if (kv.paths.length === 1) {
    const part = kv.rows_spare ? ` (${reserved})` : "";
    return `${when}${paths} in ${held}${part}.${kv.rows_reused ? "" : " One path has nothing to share."}`;
  }
  const caches = humanBytes(separate);
  if (kv.bytes_held <= separate) {
    const ratio = asMuch(separate / kv.bytes_held);
    return `${when}${paths} in ${held}; separate caches would need ${caches}: ${ratio}.`;
  }
  const part = kv.rows_spare ? `, ${reserved}` : "";
  const more = `more than the ${caches} of separate caches`;
  return `${when}${paths} in ${held}${part}: ${more}. ${whyMore(run, kv)}`;
}

/** @param {Run} run @param {RunEvent} kv */
function whyMore(run, kv) {
  const { config, model } = run.started;
  const longest = Math.max(0, ...kv.paths.map((/** @type {number[]} */ row) => row[1] + row[2]));
  if (model.window_rows?.some((/** @type {number[]} */ [tokens]) => tokens < longest)) {
    return "They would keep only the last rows in layers with a window; the tree keeps all.";
  }
  if (config.r !== "auto" && config.r >= config.max_new_tokens) {
    return `r = ${config.r} reserves all rows of the run at the start.`;
  }
  const at = run.steps.findIndex((step) => step.kv === kv);
  const before = run.steps.slice(0, at);
  if (before.some((step) => step.kv && step.kv.paths.length > kv.paths.length)) {
    return "The rows of paths that ended stay reserved.";
  }
  return "A short text needs few of the reserved rows.";
}

/** @param {number} ratio */
function asMuch(ratio) {
  return ratio >= 1.05 ? `${fixed(ratio, 1)}× as much` : "about as much";
}

// ---- what names a run elsewhere

/** The prompt, the model and the settings that shape a tree. @param {RunEvent} started */
export function originWords({ prompt, model, config, threshold_nats: threshold }) {
  const { weights = "as-loaded" } = model;
  const settings = [
    weights === "as-loaded" ? model.name : `${model.name}@${weights}`,
    `policy ${config.policy}`,
    `threshold ${fixed(threshold, 2)} nats`,
    `branch factor ${config.branch_factor}`,
    `at most ${counted(config.max_paths, "path")}`,
    counted(config.max_new_tokens, "new token"),
    `temperature ${Number(config.temperature.toPrecision(6))}`,
    `seed ${config.seed}`,
  ];
  return `“${excerpt(visible(prompt), PROMPT_LONGEST)}” ${settings.join(", ")}.`;
}

/** How the names of the run's files begin. @param {RunEvent} started */
export function fileStem({ prompt }) {
  const words = prompt.toLowerCase().slice(0, 40).replace(NO_NUMBERS, "-");
  return words.replace(/^-+|-+$/g, "") || "run";
}
