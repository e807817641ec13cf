// Explains forks: why a path forked at a token, or why it did not, and what happened at the newest
// fork.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Token } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { percent } from "./formatting.js";
import { isOfFork, placeIn } from "./paths.js";

/** The policies that fork where the entropy reaches the threshold. */
const THRESHOLD_POLICIES = ["fair", "original"];

/** Why policies without a threshold fork. @type {Record<string, string>} */
const FORKS_WITHOUT_THRESHOLD = {
  independent: "The samples go on differently here.",
  arithmetic: "The codes of this path chose different tokens here.",
  "stochastic-beam":
    "Several continuations of this path are among the texts of highest perturbed log-probability.",
  beam: "Several continuations of this path are among the most probable ones of all beams.",
  "best-first": "Several continuations of this path are among the most probable ones of all paths.",
};

/**
 * Whether the model was unsure at this token but the path did not fork.
 * @param {RunStore} store @param {Path} path
 * @param {number} index of a token of the path
 */
export function missedFork({ run, sides }, path, index) {
  const isFork = index === 0 && isOfFork(path);
  return (
    !isFork &&
    sides === null &&
    THRESHOLD_POLICIES.includes(run.policy) &&
    path.tokens[index].entropy >= run.threshold
  );
}

/** The cached result of `hasMissed` for each box, with the inputs it was found for. */
const found = /** @type {WeakMap<Path, { key: string, missed: boolean }>} */ (new WeakMap());

/**
 * Whether the model was unsure at any token of a box where the path did not fork.
 * @param {RunStore} store @param {Path} box
 */
export function hasMissed(store, box) {
  const { run, sides } = store;
  const key = `${run.threshold} ${run.policy} ${sides !== null}`;
  const before = found.get(box);
  if (before?.key === key) return before.missed;
  const missed = box.tokens.some((_, token) => {
    const { path, index } = placeIn(box, token);
    return missedFork(store, path, index);
  });
  found.set(box, { key, missed });
  return missed;
}

/**
 * A few sentences on why the path forked at this token or not, and what the fork decides.
 * @param {RunStore} store @param {Path} path @param {number} index
 */
export function forkWords(store, path, index) {
  return `${forkReason(store, path, index)} ${effectWords(store, path, index)}`.trim();
}

/**
 * A sentence or two on why the path forked at this token or not.
 * @param {RunStore} store @param {Path} path @param {number} index
 */
export function forkReason(store, path, index) {
  const { run } = store;
  if (path.status === "given") return "You asked about this text. It has no weight.";
  const token = path.tokens[index];
  const entropy = token.entropy.toFixed(2);
  const threshold = run.threshold.toFixed(2);
  if (!THRESHOLD_POLICIES.includes(run.policy)) {
    const own = run.policy.startsWith("own:");
    const reason = own
      ? `The policy ${run.policy} forked here.`
      : FORKS_WITHOUT_THRESHOLD[run.policy];
    const why = index === 0 && isOfFork(path) ? reason : "";
    if (why) return `${why} This branch received ${percent(path.share)} of the weight.`;
    if (own) return `No fork: the policy ${run.policy} decides where there is one.`;
    return `The policy ${run.policy} does not use the threshold.`;
  }
  const reached = `Entropy ${entropy} reached the threshold ${threshold}`;
  if (index === 0 && isOfFork(path)) {
    const siblings = store.childrenOf(path.parent).filter(isOfFork).length;
    const forked = `${reached}, so path ${path.parent} forked into ${siblings} branches here.`;
    return `${forked}${branchWeight(store, path, token)}`;
  }
  if (token.entropy < run.threshold) {
    return `No fork: entropy ${entropy} is below the threshold ${threshold}.`;
  }
  return `${reached}, but ${obstacle(store, path, path.born + index)}`;
}

/**
 * The reason why a path did not fork at a step where the model was unsure.
 * @param {RunStore} store @param {Path} path @param {number} step
 */
function obstacle({ run }, path, step) {
  if (path.limitedSteps.includes(step)) return "the path limit left room for only one branch.";
  if (run.policy === "fair" && run.min_fork_weight > 0) {
    const least = percent(run.min_fork_weight);
    return `the path weighed less than ${least} then, the minimum weight to fork.`;
  }
  return `the policy ${run.policy} made no second branch here.`;
}

/**
 * What a child of the policy `fair` stands for, with the probability of its token, the share of the
 * branch and, where it is a leaf, the weight of the text.
 * @param {RunStore} store @param {Path} path @param {Token} token
 */
function branchWeight(store, path, token) {
  if (store.run.policy !== "fair") return "";
  const [probability, share] = [percent(token.probability), percent(path.share)];
  if (!path.drawn) return ` The branch has ${share} of the weight of its parent.`;
  const stands = `stands for all tokens without a branch of their own, which together have ${share}`;
  return ` This token has ${probability}: it was drawn, and ${stands}.`;
}

/**
 * A sentence on what the fork before or after a token decides; "" if there is no fork.
 * @param {RunStore} store @param {Path} path
 * @param {number} index of a token of the path
 */
export function effectWords({ deciding: { effects } }, path, index) {
  const before = index === 0 ? effects.get(path.parent) : undefined;
  if (before) return `This fork ${before.words}.`;
  const after = index === path.tokens.length - 1 ? effects.get(path.id) : undefined;
  return after ? `The fork after it ${after.words}.` : "";
}

const NEW = 3; // steps during which a fork counts as new
const MOST_WORDS = 3; // branches to name

/**
 * A sentence on what happened at the newest fork, shown above the tree while the run plays.
 * @param {RunStore} store @param {ViewState} view
 * @returns {string} empty if there is no new fork or nothing moves
 */
export function forkCaption(store, view) {
  const { run } = store;
  const { cursor } = view;
  if (!view.playing && !view.gliding) return "";
  const forked = [...store.paths.values()].filter((path) => isNew(store, view, path));
  const newest = Math.max(...forked.map((path) => lastStepOf(path)));
  const now = forked.filter((path) => lastStepOf(path) === newest);
  if (!now.length || cursor <= newest) return "";
  const widest = now.reduce((best, path) => (path.share > best.share ? path : best));
  const branches = store.childrenOf(widest.id).filter((child) => child.tokens.length);
  branches.sort((a, b) => b.share - a.share);
  const named = branches.slice(0, MOST_WORDS).map(({ share, tokens: [first] }) => {
    return `“${first.text.trim() || first.text}” ${percent(share)}`;
  });
  const entropy = branches[0].tokens[0].entropy.toFixed(2);
  const more = now.length > 1 ? ` (${now.length} forks at this step)` : "";
  const unsure = `unsure, ${entropy} nats (threshold ${run.threshold.toFixed(2)}), so `;
  const why = THRESHOLD_POLICIES.includes(run.policy) ? unsure : "";
  return `Step ${newest + 1}: ${why}the text branches: ${named.join(", ")}${more}.`;
}

/** @param {Path} path */
function lastStepOf(path) {
  return path.born + path.tokens.length - 1;
}

/** @param {RunStore} store @param {ViewState} view @param {Path} path */
function isNew(store, { cursor }, path) {
  const age = cursor - lastStepOf(path);
  return path.status === "forked" && age >= 1 && age <= NEW && store.childrenOf(path.id).length > 0;
}
