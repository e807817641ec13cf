// Where the boxes of the tree stand: left to right, one row per leaf, parents in the middle of their
// children. Before a tree is drawn smaller than can be read, the texts in its boxes are shortened.
// Units are CSS pixels at scale 1.

/** @import { Board } from "./board.js" */
/** @import { Layout, Path } from "./types.d.ts" */
import { endOf, shorten, shortWidth, textWidth } from "./text.js";

const ROW = 28;
const STUB_ROW = 20; // of a pruned path
const GAP = 50; // between a box and its children; the share stands there
const PADDING = 20; // in a box, left and right together
export const MARKS = 74; // after a box: its mark and its weight
const LENGTHS = [44, 32, 24, 16, 10]; // characters in a box; the first with which the tree fits
const LENGTHS_IN_FOCUS = [120, 80, ...LENGTHS];
const PROMPT_LENGTHS = [34, 28, 22, 16, 12]; // characters of the prompt, by the place in LENGTHS

/** @type {Layout} */
export const EMPTY_LAYOUT = {
  x: [],
  y: [],
  boxWidths: [],
  rank: [],
  longest: LENGTHS[0],
  prompt: "",
  promptWidth: 0,
  width: 0,
  height: 0,
};

/**
 * The words in the box of a path once `count` of its tokens are there.
 * @param {Board} board
 * @param {Path} path
 * @param {number} count
 */
export function labelOf(board, path, count) {
  const pieces = path.tokens.slice(0, count).map((token) => token.piece);
  return shorten(pieces, board.layout.longest, board.selection.tokenIn(path));
}

/**
 * @param {Board} board
 * @returns {Layout}
 */
export function arrange(board) {
  const { camera } = board.tree;
  const room = camera.room();
  const { inOrder, rank } = treeOrder([...board.paths.values()]);
  const kept = inOrder.filter((path) => board.inView(path.id));
  const { y, height } = rows(kept);
  const lengths = board.focused === null ? LENGTHS : LENGTHS_IN_FOCUS;
  // A high tree is drawn smaller as a whole, so a wider one fits.
  const whole = camera.showsWhole ? room.height / height : Number.POSITIVE_INFINITY;
  const scale = Math.min(camera.readable, whole);
  for (const longest of lengths) {
    const across = columns(board, kept, longest);
    const fits = (across.width + MARKS) * scale <= room.width;
    if (fits || longest === lengths.at(-1)) return { ...across, y, rank, longest, height };
  }
  return EMPTY_LAYOUT;
}

/**
 * Parents before their children, siblings in order of birth.
 * @param {Path[]} paths
 */
function treeOrder(paths) {
  const children = childrenOf(paths);
  /** @type {Path[]} */
  const inOrder = [];
  /** The place of each path in that order. @type {number[]} */
  const rank = [];
  const pending = [...(children.get(-1) ?? [])].reverse();
  for (let path = pending.pop(); path; path = pending.pop()) {
    rank[path.id] = inOrder.length;
    inOrder.push(path);
    pending.push(...[...(children.get(path.id) ?? [])].reverse());
  }
  return { inOrder, rank };
}

/** @param {Path[]} paths */
function childrenOf(paths) {
  /** @type {Map<number, Path[]>} */
  const children = new Map();
  for (const path of [...paths].sort((one, other) => one.id - other.id)) {
    const siblings = children.get(path.parent);
    if (siblings) siblings.push(path);
    else children.set(path.parent, [path]);
  }
  return children;
}

/**
 * Left edges and widths.
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @param {number} longest characters in a box
 */
function columns(board, kept, longest) {
  const prompt = endOf(board.run.prompt, PROMPT_LENGTHS[Math.max(0, LENGTHS.indexOf(longest))]);
  const promptWidth = textWidth(prompt) + PADDING;
  /** @type {number[]} */
  const x = [];
  /** @type {number[]} */
  const boxWidths = [];
  let width = promptWidth;
  for (const path of kept) {
    const { id, parent, tokens } = path;
    boxWidths[id] = shortWidth(tokens, longest) + PADDING;
    x[id] = parent < 0 ? promptWidth + GAP / 2 : x[parent] + boxWidths[parent] + GAP;
    width = Math.max(width, x[id] + boxWidths[id]);
  }
  return { x, boxWidths, prompt, promptWidth, width };
}

/**
 * Leaves one under another; a parent stands in the middle of its children.
 * @param {Path[]} kept parents before their children
 */
function rows(kept) {
  const children = childrenOf(kept);
  /** @type {number[]} */
  const y = [];
  let height = 0;
  for (const path of kept.filter(({ id }) => !children.has(id))) {
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
