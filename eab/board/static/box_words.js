// What a box shows about its path besides the text, in the tree and in the outline.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Status } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { percent } from "./format.js";
import { textsAt, weightAt } from "./path_state.js";

const LEAST_NAMED = 0.005; // weight

/**
 * The CSS class of an entropy: how unsure the model was.
 * @param {number} entropy @param {number} threshold
 */
export function entropyClass(entropy, threshold) {
  if (entropy >= threshold) return "unsure";
  return entropy >= threshold / 2 ? "fairly-sure" : "sure";
}

/** What the status is called. @param {Status} status */
export function statusWord(status) {
  return status === "pruned" ? "dropped" : status;
}

/** The sign after the text. @param {Path} path @param {Status} status */
export function markOf({ finishReason }, status) {
  const end = finishReason === "stop" ? "■" : "→";
  return { forked: "◆", finished: end, pruned: "×", live: "" }[status];
}

/**
 * The weight of a path; for two runs, its weight in each run that contains it.
 * @param {RunStore} store @param {Path} path @param {number} step
 * @returns {string[]} one or two
 */
export function weightWords({ isGraft, sides, weightsInB }, path, step) {
  const own = percent(weightAt(path, step));
  if (!sides || isGraft) return [own];
  const side = sides[path.id];
  if (side !== "both") return [`${side.toUpperCase()} ${own}`];
  return [`A ${own}`, `B ${percent(weightsInB[path.id] ?? 0)}`];
}

/**
 * The name of a box for screen readers.
 * @param {Path} path @param {Status} status @param {string} text
 * @param {string[]} weights in words
 * @param {string} texts that it stands for, in words; "" if only one
 */
export function nameOf(path, status, text, weights, texts) {
  const name = texts || `path ${path.id}`;
  return `${name}, ${statusWord(status)}, weight ${weights.join(", ")}: ${text}`;
}

/**
 * Describes the texts that are not drawn after a fork.
 * @param {ViewState} view
 * @param {number} fork path that forks
 * @returns {{ words: string, help: string }} empty words if all is drawn
 */
export function foldedWords(view, fork) {
  const { count, weight } = view.branches.foldedAt(fork);
  const words = `${count} more${weight >= LEAST_NAMED ? `, ${percent(weight)}` : ""}`;
  const noun = count === 1 ? "text" : "texts";
  const help = `${count} more ${noun}: dropped, of small weight, or without room. Click to see.`;
  return count ? { words, help } : { words: "", help: "" };
}

/**
 * Describes the texts that a box of several texts stands for.
 * @param {ViewState} view @param {Path} box
 * @returns {{ words: string, help: string, name: string }} empty while it is one text
 */
export function joinedWords(view, box) {
  const count = textsAt(box, view.cursor).length;
  if (count <= 1) return { words: "", help: "", name: "" };
  const name = `${count} texts with the answer “${box.joined?.answer}”`;
  return { words: `${count} texts`, help: `${name}. Click to see.`, name };
}
