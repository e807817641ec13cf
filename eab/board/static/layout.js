// Where the boxes of the tree stand: left to right, one row per leaf, parents in the middle of their
// children. Boxes share the width and the height by what their texts need; before a tree is drawn
// smaller than can be read, texts are shortened. Units are CSS pixels at scale 1.

/** @import { Board } from "./board.js" */
/** @import { Camera } from "./camera.js" */
/** @import { Arrangement, BoxSizes, Layout, Path } from "./types.d.ts" */
import { endOf, wrappedSize, wrapTokens } from "./label.js";

export const LINE = 20; // of text, with the entropies under it
export const BOX = 24; // the height of a box with one line
const STUB_BOX = 17; // of a pruned path
const ROW_GAP = 4; // between a box and the one below
const ROW_GAP_OF_LINES = 10; // if it has several lines
const GAP = { widest: 50, narrowest: 34 }; // between a box and its children; the share stands there
const SHALLOW = 3; // forks one after the other
const PADDING = 20; // in a box, left and right together
export const MARKS = 74; // after a box: its mark and its weight
const PROMPT_LINES = 6; // it is alone in its column
const PROMPT_LINE = { shortest: 12, longest: 34 }; // characters
const BOX_LINE = { shortest: 10, longest: 60 };
const STUB_LINE = 14;
const LONGEST_WORD = 14; // a longer one may be cut
const MOST_LINES = 12;
const CHARACTER = 6.9; // px, about; boxes are measured before a tree is taken
const UNEVEN = 1.15; // whole words do not fill their lines
const NARROWER = 0.85; // a step towards lines that fit
const CLEARLY_FEWER = 0.9; // characters left out, to be worth higher boxes

/** @type {Layout} */
export const EMPTY_LAYOUT = {
  x: [],
  y: [],
  boxWidths: [],
  boxHeights: [],
  perLine: [],
  rank: [],
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
  const characters = perLine[path.id] ?? BOX_LINE.shortest;
  return wrapTokens(pieces, characters, most, board.selection.tokenIn(path));
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
 * The arrangement that fits and leaves out the fewest characters; the lowest if none fits.
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @returns {Arrangement}
 */
function fittest(board, kept) {
  const { camera } = board.tree;
  const highest = camera.room().height / camera.readable;
  let best = fittingAcross(board, kept, 1);
  if (board.aligned) return best;
  for (let lines = 2; lines <= MOST_LINES && best.leftOut > 0; lines += 1) {
    const higher = fittingAcross(board, kept, lines);
    if (higher.height > highest) break;
    if (higher.leftOut < CLEARLY_FEWER * best.leftOut) best = higher;
  }
  return best;
}

/**
 * The arrangement with the longest lines that fit into the width; the narrowest if none fits.
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @param {number} lines in the box of a leaf, at most
 * @returns {Arrangement}
 */
function fittingAcross(board, kept, lines) {
  const { camera } = board.tree;
  const most = mostLines(kept, board.aligned ? 1 : lines);
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
 * How many lines each box may have: a parent as many as the boxes of its leaves together.
 * @param {Path[]} kept parents before their children
 * @param {number} lines of a leaf
 */
function mostLines(kept, lines) {
  const children = childrenOf(kept);
  /** @type {number[]} */
  const most = [];
  for (const path of [...kept].reverse()) {
    const below = (children.get(path.id) ?? []).reduce((sum, { id }) => sum + most[id], 0);
    const own = Math.min(lines, Math.ceil(lengthOf(path) / BOX_LINE.shortest));
    most[path.id] = path.status === "pruned" ? 1 : Math.min(MOST_LINES, Math.max(1, own, below));
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

/** @param {number} longest line of the boxes, characters */
function promptLine(longest) {
  return Math.max(PROMPT_LINE.shortest, Math.min(PROMPT_LINE.longest, longest));
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

/**
 * @param {Board} board
 * @param {Path[]} kept parents before their children
 * @param {BoxSizes} sizes
 * @param {number} longest line of the boxes, characters
 * @returns {Arrangement}
 */
function arranged(board, kept, { perLine, most }, longest) {
  const promptLength = promptLine(longest);
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
    const size = wrappedSize(pieces, perLine[path.id], most[path.id]);
    boxWidths[path.id] = size.width + PADDING;
    boxHeights[path.id] = path.status === "pruned" ? STUB_BOX : heightOf(size.lines);
    leftOut += size.leftOut;
  }
  const across = columns(kept, boxWidths, promptWidth);
  const down = rows(kept, boxHeights, promptHeight);
  const sizes = { boxWidths, boxHeights, perLine, prompt, promptWidth, promptHeight };
  return { ...across, ...down, ...sizes, leftOut };
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
 * The gap between a box and its children: in a deep tree it is narrow, since texts need the room.
 * @param {Path[]} kept parents before their children
 */
function gapOf(kept) {
  /** @type {number[]} */
  const depth = [];
  for (const { id, parent } of kept) depth[id] = parent in depth ? depth[parent] + 1 : 0;
  return Math.max(...depth, 0) > SHALLOW ? GAP.narrowest : GAP.widest;
}

/**
 * Left edges.
 * @param {Path[]} kept parents before their children
 * @param {number[]} boxWidths
 * @param {number} promptWidth
 */
function columns(kept, boxWidths, promptWidth) {
  const gap = gapOf(kept);
  /** @type {number[]} */
  const x = [];
  let width = promptWidth;
  for (const { id, parent } of kept) {
    x[id] = parent < 0 ? promptWidth + gap / 2 : x[parent] + boxWidths[parent] + gap;
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
