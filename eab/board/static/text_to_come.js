// The rest of a text, pale: what comes after the cursor where it rests by itself, so that the texts can
// be read there. Whoever moves the cursor sees each text as far as it was.

/** @import { Board } from "./board.js" */
/** @import { Path } from "./types.d.ts" */
import { shape } from "./elements.js";
import { labelOf } from "./layout.js";
import { textOf } from "./path_state.js";

/**
 * The label of the whole text where the cursor rests in it; null elsewhere.
 * @param {Board} board
 * @param {Path} path
 * @param {number} count tokens up to the cursor
 */
export function labelToCome(board, path, count) {
  if (!isShown(board) || count === path.tokens.length) return null;
  const label = labelOf(board, path, path.tokens.length);
  const isWhole = !label.lines.some((line) => line.includes("…"));
  return isWhole ? { ...label, cells: label.cells.slice(0, count) } : null;
}

/**
 * Make what is not there yet pale.
 * @param {Board} board
 * @param {SVGTextElement} text that has been written
 * @param {Path} path
 * @param {number} count tokens up to the cursor
 */
export function markToCome(board, text, path, count) {
  if (!isShown(board)) return;
  let left = withoutSpace(textOf(path, count));
  for (const line of text.querySelectorAll("tspan")) {
    const words = line.textContent ?? "";
    const there = left.slice(0, words.length);
    left = withoutSpace(left.slice(there.length));
    if (there.length === words.length) continue;
    line.replaceChildren(there, shape("tspan", { class: "to-come" }, words.slice(there.length)));
  }
}

/** @param {Board} board */
function isShown(board) {
  return board.replay.atRest && !board.aligned;
}

/**
 * A line does not begin with the space that it broke at.
 * @param {string} words
 */
function withoutSpace(words) {
  return words.replace(/^ /, "");
}
