// Where the boxes of the tree stand: left to right, one row per leaf, parents in the middle of their
// children. Texts get several lines where there is room below one another; before a tree is drawn
// smaller than can be read, they are shortened. Units are CSS pixels at scale 1.

/** @import { Board } from "./board.js" */
/** @import { Camera } from "./camera.js" */
/** @import { Arrangement, Layout, Path } from "./types.d.ts" */
import { endOf, wrappedSize, wrapTokens } from "./label.js";

export const LINE = 20; // of text, with the entropies under it
export const BOX = 24; // the height of a box with one line
const STUB_BOX = 17; // of a pruned path
const ROW_GAP = 4; // between a box and the one below
const ROW_GAP_OF_LINES = 10; // if it has several lines
const GAP = 50; // between a box and its children; the share stands there
const PADDING = 20; // in a box, left and right together
export const MARKS = 74; // after a box: its mark and its weight
const LENGTHS = [44, 32, 24, 16, 10]; // characters in a line
const LENGTHS_IN_FOCUS = [120, 80, ...LENGTHS];
const PROMPT_LINES = 4; // it is alone in its column
const PROMPT_LENGTHS = [34, 28, 22, 16, 12]; // of the prompt, by the place in LENGTHS
const MOST_LINES = 6;
const CLEARLY_FEWER = 0.8; // characters left out, to be worth shorter lines

/** @type {Layout} */
export const EMPTY_LAYOUT = {
  x: [],
  y: [],
  boxWidths: [],
  boxHeights: [],
  rank: [],
  perLine: LENGTHS[0],
  mostLines: 1,
  prompt: { lines: [], width: 0, cells: [] },
  promptWidth: 0,
  promptHeight: BOX,
  width: 0,
  height: 0,
  leftOut: 0,
};

/**
 * The words in the box of a path once `count` of its tokens are there, in as many lines as the whole
 * text has.
 * @param {Board} board
 * @param {Path} path
 * @param {number} count
 */
export function labelOf(board, path, count) {
  const pieces = path.tokens.slice(0, count).map((token) => token.piece);
  const { perLine, boxHeights } = board.layout;
  const most = linesIn(boxHeights[path.id] ?? BOX);
  return wrapTokens(pieces, perLine, most, board.selection.tokenIn(path));
}

/**
 * @param {Board} board
 * @returns {Layout}
 */
export function arrange(board) {
  const { inOrder, rank } = treeOrder([...board.paths.values()]);
  const kept = inOrder.filter((path) => board.inView(path.id));
  return { ...fittest(board, kept), rank };
}

/**
 * The arrangement that fits and leaves out the fewest characters; the smallest if none fits.
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @returns {Arrangement}
 */
function fittest(board, kept) {
  const { camera } = board.tree;
  const lengths = board.focused === null ? LENGTHS : LENGTHS_IN_FOCUS;
  /** @type {Arrangement} */
  let best = EMPTY_LAYOUT;
  /** @type {Arrangement} */
  let found = EMPTY_LAYOUT;
  for (const perLine of lengths) {
    found = withLines(board, kept, perLine);
    const isBetter = best === EMPTY_LAYOUT || found.leftOut < CLEARLY_FEWER * best.leftOut;
    if (isBetter && fitsAcross(camera, found)) best = found;
    if (best !== EMPTY_LAYOUT && (best.leftOut === 0 || best.mostLines === 1)) break;
  }
  return best === EMPTY_LAYOUT ? found : best;
}

/**
 * A high tree is drawn smaller as a whole, so that a wider one fits.
 * @param {Camera} camera
 * @param {Arrangement} tree
 */
function fitsAcross(camera, tree) {
  const room = camera.room();
  const whole = camera.showsWhole ? room.height / tree.height : Number.POSITIVE_INFINITY;
  return (tree.width + MARKS) * Math.min(camera.readable, whole) <= room.width;
}

/**
 * The arrangement with as many lines in a box as the height has room for.
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @param {number} perLine characters in a line
 * @returns {Arrangement}
 */
function withLines(board, kept, perLine) {
  const { camera } = board.tree;
  const highest = camera.room().height / camera.readable;
  let tree = arranged(board, kept, perLine, 1);
  if (board.aligned || tree.height >= highest) return tree;
  for (let lines = MOST_LINES; lines > 1 && tree.leftOut > 0; lines -= 1) {
    const higher = arranged(board, kept, perLine, lines);
    if (higher.height <= highest) tree = higher;
    if (tree === higher) break;
  }
  return tree;
}

/**
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @param {number} perLine characters in a line
 * @param {number} mostLines lines in a box
 * @returns {Arrangement}
 */
function arranged(board, kept, perLine, mostLines) {
  const promptLength = PROMPT_LENGTHS[Math.max(0, LENGTHS.indexOf(perLine))];
  const end = endOf(board.run.prompt, promptLength * (PROMPT_LINES - 1));
  const prompt = wrapTokens([end], promptLength, PROMPT_LINES);
  const promptHeight = heightOf(prompt.lines.length);
  const promptWidth = prompt.width + PADDING;
  /** @type {number[]} */
  const boxWidths = [];
  /** @type {number[]} */
  const boxHeights = [];
  let leftOut = 0;
  for (const path of kept) {
    const pieces = path.tokens.map(({ piece }) => piece);
    const size = wrappedSize(pieces, perLine, linesOf(path, mostLines));
    boxWidths[path.id] = size.width + PADDING;
    boxHeights[path.id] = path.status === "pruned" ? STUB_BOX : heightOf(size.lines);
    leftOut += size.leftOut;
  }
  const across = columns(kept, boxWidths, promptWidth);
  const down = rows(kept, boxHeights, promptHeight);
  const sizes = { boxWidths, boxHeights, prompt, promptWidth, promptHeight };
  return { ...across, ...down, ...sizes, perLine, mostLines, leftOut };
}

/** @param {number} lines */
function heightOf(lines) {
  return BOX + LINE * (Math.max(1, lines) - 1);
}

/** @param {number} height of a box */
function linesIn(height) {
  return 1 + Math.max(0, Math.round((height - BOX) / LINE));
}

/**
 * @param {Path} path
 * @param {number} mostLines
 */
function linesOf(path, mostLines) {
  return path.status === "pruned" ? 1 : mostLines;
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
 * Left edges.
 * @param {Path[]} kept parents before their children
 * @param {number[]} boxWidths
 * @param {number} promptWidth
 */
function columns(kept, boxWidths, promptWidth) {
  /** @type {number[]} */
  const x = [];
  let width = promptWidth;
  for (const { id, parent } of kept) {
    x[id] = parent < 0 ? promptWidth + GAP / 2 : x[parent] + boxWidths[parent] + GAP;
    width = Math.max(width, x[id] + boxWidths[id]);
  }
  return { x, width };
}

/**
 * Middle lines. Leaves stand one under another, a parent in the middle of its children; one that is
 * higher than they are gets more room.
 * @param {Path[]} kept parents before their children
 * @param {number[]} boxHeights
 * @param {number} promptHeight
 */
function rows(kept, boxHeights, promptHeight) {
  const children = childrenOf(kept);
  /** The room of each path and what grew from it. @type {number[]} */
  const room = [];
  const sum = (/** @type {Path[]} */ paths) => paths.reduce((all, { id }) => all + room[id], 0);
  for (const { id } of [...kept].reverse()) {
    const gap = boxHeights[id] > BOX ? ROW_GAP_OF_LINES : ROW_GAP;
    room[id] = Math.max(boxHeights[id] + gap, sum(children.get(id) ?? []));
  }
  /** @type {number[]} */
  const y = [];
  const place = (/** @type {Path[]} */ paths, /** @type {number} */ top) => {
    for (const { id } of paths) {
      y[id] = top + room[id] / 2;
      top += room[id];
    }
  };
  const roots = kept.filter(({ parent }) => !(parent in room));
  const height = Math.max(promptHeight + ROW_GAP, sum(roots));
  place(roots, (height - sum(roots)) / 2);
  for (const { id } of kept) {
    const own = children.get(id) ?? [];
    place(own, y[id] - sum(own) / 2);
  }
  for (const { id } of [...kept].reverse()) {
    const own = children.get(id)?.map((child) => y[child.id]);
    if (own)
      y[id] = between(
        y[id],
        (Math.min(...own) + Math.max(...own)) / 2,
        (room[id] - boxHeights[id]) / 2,
      );
  }
  return { y, height };
}

/**
 * The wanted place, or as near to it as the room allows.
 * @param {number} middle of the room
 * @param {number} wanted
 * @param {number} most distance from the middle
 */
function between(middle, wanted, most) {
  return Math.min(middle + most, Math.max(middle - most, wanted));
}
