// A sentence on what happened at the newest fork, shown above the tree while the run plays.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { THRESHOLD_POLICIES } from "./fork_reasons.js";
import { percent } from "./format.js";

const NEW = 3; // steps during which a fork counts as new
const MOST_WORDS = 3; // branches to name

/**
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
