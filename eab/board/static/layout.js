// Where the boxes stand when some are folded or left out. eab/board/layout.py computes the layout
// of the whole tree; this closes the gaps in it.

/** @import { Board } from "./board.js" */
/** @import { Label, Layout, Path } from "./types.d.ts" */
import { shorten, textWidth } from "./text.js";

const ROW = 28; // these four as in eab/board/layout.py
const STUB_ROW = 20;
const GAP = 58;
const PADDING = 20;
const LONGEST = 44; // characters in a box
const LONGEST_IN_FOCUS = 120;
const FOLDED_LENGTH = 14; // characters in a folded box
const SHORTEST_FOLDED = 4; // tokens; shorter paths are not folded

/** @type {Layout} */
export const EMPTY_LAYOUT = { x: [], y: [], box_widths: [], prompt_width: 0, width: 0, height: 0 };

/**
 * The words in the box of a path once `count` of its tokens are there.
 * @param {Board} board
 * @param {Path} path
 * @param {number} count
 */
export function labelOf(board, path, count) {
  const pieces = path.tokens.slice(0, count).map((token) => token.piece);
  if (board.folded && count >= SHORTEST_FOLDED) return foldedLabel(pieces);
  return shorten(pieces, board.focused === null ? LONGEST : LONGEST_IN_FOCUS);
}

/**
 * @param {string[]} pieces
 * @returns {Label}
 */
function foldedLabel(pieces) {
  const beginning = [...pieces.join("")].slice(0, FOLDED_LENGTH).join("");
  const text = `${beginning} … ${pieces.length} tokens`;
  const width = textWidth(text);
  const cell = width / pieces.length;
  const cells = pieces.map((_, index) => ({ left: index * cell, right: (index + 1) * cell }));
  return { text, width, cells };
}

/**
 * @param {Board} board
 * @param {Layout} whole the layout of all paths
 * @returns {Layout} the layout of those that are in view, as the board folds them
 */
export function arrange(board, whole) {
  if (!board.folded && board.focused === null) return whole;
  const kept = [...board.paths.values()].filter((path) => board.inFocus(path.id));
  kept.sort((one, other) => one.id - other.id); // parents before their children
  /** @type {number[]} */
  const x = [];
  /** @type {number[]} */
  const box_widths = [];
  for (const path of kept) {
    const { id, parent } = path;
    box_widths[id] = labelOf(board, path, path.tokens.length).width + PADDING;
    x[id] = parent < 0 ? whole.prompt_width + GAP / 2 : x[parent] + box_widths[parent] + GAP;
  }
  const { y, height } = rows(kept, whole);
  const width = Math.max(whole.prompt_width, ...kept.map(({ id }) => x[id] + box_widths[id]));
  return { x, y, box_widths, prompt_width: whole.prompt_width, width, height };
}

/**
 * Leaves keep their order; a parent stands in the middle of its children.
 * @param {Path[]} kept in order of id
 * @param {Layout} whole
 */
function rows(kept, whole) {
  /** @type {Map<number, Path[]>} */
  const children = new Map();
  for (const path of kept) {
    children.set(path.parent, [...(children.get(path.parent) ?? []), path]);
  }
  /** @type {number[]} */
  const y = [];
  let height = 0;
  const leaves = kept.filter((path) => !children.has(path.id));
  leaves.sort((one, other) => whole.y[one.id] - whole.y[other.id]);
  for (const path of leaves) {
    const row = path.status === "pruned" ? STUB_ROW : ROW;
    y[path.id] = height + row / 2;
    height += row;
  }
  for (const path of [...kept].reverse()) {
    const own = children.get(path.id)?.map((child) => y[child.id]);
    if (own) y[path.id] = (Math.min(...own) + Math.max(...own)) / 2;
  }
  return { y, height: Math.max(ROW, height) };
}
