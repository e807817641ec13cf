// How much text each box of the tree holds. Boxes share the width and the height by what their texts
// need; before a tree is drawn smaller than can be read, texts are shortened.

/** @import { Board } from "./board.js" */
/** @import { Camera } from "./camera.js" */
/** @import { Arrangement, Layout, Path } from "./types.d.ts" */
import {
  arranged,
  BOX_LINE,
  childrenOf,
  columns,
  MARKS,
  PADDING,
  promptLine,
  treeOrder,
} from "./layout.js";

const STUB_LINE = 14; // characters of a pruned path
const LONGEST_WORD = 14; // a longer one may be cut
const MOST_LINES = 12;
const MOST_TRIES = 24; // to use the height that is left
const CHARACTER = 6.4; // px, about; boxes are measured before a tree is taken
const UNEVEN = 1.15; // whole words do not fill their lines
const NARROWER = 0.85; // a step towards lines that fit
const CLEARLY_FEWER = 0.9; // characters left out, to be worth higher boxes

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
 * The arrangement that fits and leaves out the fewest characters; the lowest if none fits.
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @returns {Arrangement}
 */
function fittest(board, kept) {
  const { camera } = board.tree;
  const highest = camera.room().height / camera.readable;
  let best = fittingAcross(board, kept, 1, false);
  if (board.aligned) return best;
  for (let lines = 1; lines <= MOST_LINES && best.leftOut > 0; lines += 1) {
    const [even, high] = [false, true].map((tall) => fittingAcross(board, kept, lines, tall));
    if (even.height > highest) break;
    if (even.leftOut < CLEARLY_FEWER * best.leftOut) best = even;
    if (high.height <= highest && high.leftOut < CLEARLY_FEWER * best.leftOut) best = high;
  }
  return withSingleLines(board, kept, best, highest);
}

/**
 * The height that is left goes to the boxes that leave out most, line by line.
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @param {Arrangement} found
 * @param {number} highest px
 * @returns {Arrangement}
 */
function withSingleLines(board, kept, found, highest) {
  let best = found;
  const full = new Set(kept.filter(({ status }) => status === "pruned").map(({ id }) => id));
  for (let tries = 0; tries < MOST_TRIES && best.height < highest; tries += 1) {
    const open = kept.filter(({ id }) => best.missing[id] > 0 && !full.has(id));
    if (!open.length) break;
    const { id } = open.reduce((one, other) =>
      best.missing[other.id] > best.missing[one.id] ? other : one,
    );
    const most = [...best.most];
    most[id] += 1;
    const higher = arranged(board, kept, { perLine: best.perLine, most }, best.longest);
    if (higher.height <= highest && most[id] <= MOST_LINES) best = higher;
    else full.add(id);
  }
  return best;
}

/**
 * The arrangement with the longest lines that fit into the width; the narrowest if none fits.
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @param {number} lines in the box of a leaf, at most
 * @param {boolean} tall whether the box of a parent may be as high as those of its leaves together
 * @returns {Arrangement}
 */
function fittingAcross(board, kept, lines, tall) {
  const { camera } = board.tree;
  const most = mostLines(kept, lines, tall);
  const needs = kept.map((path) => charactersNeeded(path, most[path.id]));
  let room = camera.room().width / camera.readable;
  let longest = BOX_LINE.longest;
  for (;;) {
    longest = longestLine(kept, needs, longest, room);
    const perLine = lineLengths(kept, needs, longest);
    const found = arranged(board, kept, { perLine, most }, longest);
    room = roomAcross(camera, found);
    if (found.width + MARKS <= room || longest === BOX_LINE.shortest) {
      const wider = { perLine: toTheEdge(kept, needs, found, room), most };
      return arranged(board, kept, wider, longest);
    }
    longest = Math.max(BOX_LINE.shortest, Math.floor(longest * NARROWER));
  }
}

/**
 * The width that a tree may have. A high one is drawn smaller as a whole, so that a wider one fits.
 * @param {Camera} camera
 * @param {Arrangement} tree
 */
function roomAcross(camera, tree) {
  const room = camera.room();
  const whole = camera.showsWhole ? room.height / tree.height : Number.POSITIVE_INFINITY;
  return room.width / Math.min(camera.readable, whole);
}

/**
 * How many lines each box may have.
 * @param {Path[]} kept parents before their children
 * @param {number} lines of a leaf
 * @param {boolean} tall whether a parent may have as many as its leaves together
 */
function mostLines(kept, lines, tall) {
  const children = childrenOf(kept);
  /** @type {number[]} */
  const most = [];
  for (const path of [...kept].reverse()) {
    const below = (children.get(path.id) ?? []).reduce((sum, { id }) => sum + most[id], 0);
    const own = Math.min(lines, Math.ceil(lengthOf(path) / BOX_LINE.shortest));
    const wanted = tall ? Math.max(own, below) : own;
    most[path.id] = path.status === "pruned" ? 1 : Math.max(1, Math.min(MOST_LINES, wanted));
  }
  return most;
}

/** @param {Path} path */
function lengthOf(path) {
  return path.tokens.reduce((sum, { piece }) => sum + piece.length, 0);
}

/**
 * Characters in a line with which the whole text fits into so many lines, about.
 * @param {Path} path
 * @param {number} lines
 */
function charactersNeeded(path, lines) {
  const length = lengthOf(path);
  if (path.status === "pruned") return Math.min(STUB_LINE, length);
  const needed = Math.ceil((length / lines) * (lines > 1 ? UNEVEN : 1));
  return Math.max(Math.min(length, BOX_LINE.shortest), longestWord(path), needed);
}

/** @param {Path} path */
function longestWord(path) {
  const words = path.tokens
    .map(({ piece }) => piece)
    .join("")
    .split(" ");
  return Math.min(LONGEST_WORD, Math.max(...words.map(({ length }) => length)));
}

/**
 * The longest line that all boxes may have, by an estimate of their widths.
 * @param {Path[]} kept parents before their children
 * @param {number[]} needs characters in a line, in the order of `kept`
 * @param {number} most characters
 * @param {number} room px
 */
function longestLine(kept, needs, most, room) {
  for (let longest = most; longest > BOX_LINE.shortest; longest -= 1) {
    const widths = needs.map((needed) => widthOf(Math.min(needed, longest)));
    if (Math.max(...rightEdges(kept, widths, promptRoom(longest))) + MARKS <= room) return longest;
  }
  return BOX_LINE.shortest;
}

/**
 * Characters in a line of each box, by the path's id: what it needs, or the longest line.
 * @param {Path[]} kept parents before their children
 * @param {number[]} needs characters in a line, in the order of `kept`
 * @param {number} longest line
 */
function lineLengths(kept, needs, longest) {
  /** @type {number[]} */
  const perLine = [];
  for (const [index, path] of kept.entries()) {
    const least = path.status === "pruned" ? 1 : longestWord(path);
    perLine[path.id] = Math.max(1, least, Math.min(needs[index], longest));
  }
  return perLine;
}

/**
 * The same where leaves that need more may reach the right edge.
 * @param {Path[]} kept parents before their children
 * @param {number[]} needs characters in a line, in the order of `kept`
 * @param {Arrangement} found
 * @param {number} room px
 */
function toTheEdge(kept, needs, found, room) {
  const parents = new Set(kept.map(({ parent }) => parent));
  const perLine = [...found.perLine];
  for (const [index, { id, status }] of kept.entries()) {
    if (parents.has(id) || status === "pruned") continue;
    const free = Math.floor((room - MARKS - found.x[id] - PADDING) / CHARACTER);
    perLine[id] = Math.max(perLine[id], Math.min(needs[index], free));
  }
  return perLine;
}

/** @param {number} characters in a line */
function widthOf(characters) {
  return characters * CHARACTER + PADDING;
}

/** @param {number} longest line of the boxes, characters */
function promptRoom(longest) {
  return widthOf(promptLine(longest));
}

/**
 * @param {Path[]} kept parents before their children
 * @param {number[]} widths of their boxes, in this order
 * @param {number} promptWidth
 */
function rightEdges(kept, widths, promptWidth) {
  /** @type {number[]} */
  const boxWidths = [];
  for (const [index, path] of kept.entries()) boxWidths[path.id] = widths[index];
  const { x } = columns(kept, boxWidths, promptWidth);
  return kept.map((path, index) => x[path.id] + widths[index]);
}
