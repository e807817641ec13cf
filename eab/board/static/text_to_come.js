// The rest of a text after the cursor, drawn pale while the cursor rests by itself, so that whole
// texts can be read. Once the user moves the cursor, each text ends at the cursor.

/** @import { Path } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { shape } from "./elements.js";
import { labelOf } from "./layout.js";
import { textOf } from "./path_state.js";

/**
 * The label of the whole text if the cursor rests by itself before its end; otherwise null.
 * @param {ViewState} view @param {Path} path
 * @param {number} count tokens up to the cursor
 */
export function labelToCome(view, path, count) {
  if (!showsToCome(view) || count === path.tokens.length) return null;
  const label = labelOf(view, path, path.tokens.length);
  const isWhole = !label.lines.some((line) => line.includes("…"));
  return isWhole ? { ...label, cells: label.cells.slice(0, count) } : null;
}

/**
 * Make the text after the cursor pale.
 * @param {ViewState} view
 * @param {SVGTextElement} text that is already written
 * @param {Path} path
 * @param {number} count tokens up to the cursor
 */
export function markToCome(view, text, path, count) {
  if (!showsToCome(view)) return;
  let left = withoutSpace(textOf(path, count));
  for (const line of text.querySelectorAll("tspan")) {
    const words = line.textContent ?? "";
    const there = left.slice(0, words.length);
    left = withoutSpace(left.slice(there.length));
    if (there.length === words.length) continue;
    line.replaceChildren(there, shape("tspan", { class: "to-come" }, words.slice(there.length)));
  }
}

/** Whether the rest of each text is shown. @param {ViewState} view */
export function showsToCome(view) {
  return view.atRest && !view.aligned;
}

/** Drop the space at which a line was broken. @param {string} words */
function withoutSpace(words) {
  return words.replace(/^ /, "");
}
