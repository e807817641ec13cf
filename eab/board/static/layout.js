// The places of the boxes of the tree: left to right, one row per leaf, parents centred on their
// children. fitting.js finds how much text each box holds. Units are CSS pixels at scale 1.

/** @import { FittedText } from "./label.js" */
/** @import { Arrangement, BoxSizes, Layout, Path } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { wrapTokens } from "./label.js";
import { childrenOf } from "./paths.js";

export const LINE = 20; // of text, with the entropies under it
export const BOX = 24; // the height of a box with one line
const STUB_BOX = 20; // of a pruned path
const UNDER = 14; // the words under a box on texts that are not drawn
const ROW_GAP = 4; // between a box and the next one below
const ROW_GAP_OF_LINES = 10; // if it has several lines
const GAP = { widest: 50, narrowest: 34 }; // from a box to its children, for the share
const GAP_OF_ONE = 24; // before an only child, which shows no share
const SHALLOW = 2; // successive forks
export const PADDING = 20; // in a box, left and right together
export const MARKS = 74; // after a box: its mark and its weight
export const MARKS_DRAWN = 66; // the part of it that they take
const PROMPT_LINES = 6; // it is alone in its column
const PROMPT_LINE = { shortest: 12, longest: 24 }; // characters
export const BOX_LINE = { shortest: 10, longest: 60 };

/** @type {Layout} */
export const EMPTY_LAYOUT = {
  x: [],
  y: [],
  only: [],
  ends: [],
  boxWidths: [],
  boxHeights: [],
  perLine: [],
  most: [],
  longest: BOX_LINE.longest,
  missing: [],
  rank: [],
  prompt: { lines: [], width: 0, cells: [] },
  promptWidth: 0,
  promptHeight: BOX,
  width: 0,
  height: 0,
  leftOut: 0,
};

/**
 * The words in a path's box at `count` tokens, in as many lines as the whole text may have.
 * @param {ViewState} view @param {Path} path @param {number} count
 */
export function labelOf(view, path, count) {
  const pieces = path.tokens.slice(0, count).map((token) => token.piece);
  const { perLine, boxHeights } = view.layout;
  const most = linesIn(boxHeights[path.id] ?? BOX);
  const characters = perLine[path.id] ?? BOX_LINE.shortest;
  return wrapTokens(pieces, characters, most, view.tokenIn(path));
}

/** As much of the prompt as its box may hold. @param {string} text */
export function promptEnd(text) {
  return text.slice(-PROMPT_LINES * BOX_LINE.longest);
}

/**
 * Characters per line of the prompt, which may have several lines, as it is alone in its column.
 * @param {FittedText} prompt
 * @param {number} longest line of the boxes, characters
 */
export function promptLine({ words, whole }, longest) {
  const most = Math.max(whole, Math.min(PROMPT_LINE.longest, longest));
  const length = words.reduce((sum, word) => sum + word + 1, -1);
  const wanted = Math.max(...words, Math.ceil(length / (PROMPT_LINES - 2)));
  return Math.max(PROMPT_LINE.shortest, Math.min(most, wanted));
}

/**
 * @param {FittedText} beginning the prompt
 * @param {Path[]} kept parents before their children
 * @param {FittedText[]} texts by the path's id
 * @param {BoxSizes} sizes
 * @param {number} longest line of the boxes, characters
 * @returns {Arrangement}
 */
export function arranged(beginning, kept, texts, { perLine, most, folded }, longest) {
  const prompt = beginning.end(promptLine(beginning, longest), PROMPT_LINES);
  const promptHeight = heightOf(prompt.lines.length);
  const promptWidth = prompt.width + PADDING;
  const children = childrenOf(kept);
  /** @type {Record<"boxWidths" | "boxHeights" | "missing", number[]>} */
  const { boxWidths, boxHeights, missing } = { boxWidths: [], boxHeights: [], missing: [] };
  /** @type {Record<"only" | "ends", boolean[]>} */
  const { only, ends } = { only: [], ends: [] };
  for (const path of kept) {
    const { id, parent } = path;
    const size = texts[id].size(perLine[id], most[id]);
    boxWidths[id] = size.width + PADDING;
    boxHeights[id] = boxHeight(path, size.lines);
    missing[id] = size.leftOut;
    only[id] = children.get(parent)?.length === 1;
    ends[id] = !children.has(id);
  }
  const leftOut = kept.reduce((sum, { id }) => sum + missing[id], 0);
  return {
    ...columns(kept, children, boxWidths, promptWidth),
    ...rows(kept, children, { boxHeights, folded }, promptHeight),
    ...{ boxWidths, boxHeights, only, ends, perLine, most, longest, missing, leftOut },
    ...{ prompt, promptWidth, promptHeight },
  };
}

/** @param {Path} path @param {number} lines */
export function boxHeight(path, lines) {
  return path.status === "pruned" ? STUB_BOX : heightOf(lines);
}

/** The number of lines in a box that fits this room. @param {number} room px, with a gap */
export function linesFitting(room) {
  return 1 + Math.max(0, Math.floor((room - ROW_GAP_OF_LINES - BOX) / LINE));
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
 * The rank of each path, by its id: parents before their children, siblings in order of birth.
 * @param {Path[]} paths
 */
export function treeOrder(paths) {
  const children = childrenOf(paths);
  /** @type {number[]} */
  const rank = [];
  let place = 0;
  const pending = [...(children.get(-1) ?? [])].reverse();
  for (let path = pending.pop(); path; path = pending.pop()) {
    rank[path.id] = place;
    place += 1;
    pending.push(...[...(children.get(path.id) ?? [])].reverse());
  }
  return rank;
}

/**
 * The gap between a box and its children: narrow in a deep tree, because texts need the room.
 * @param {Path[]} kept parents before their children
 */
function gapOf(kept) {
  /** @type {number[]} */
  const depth = [];
  for (const { id, parent } of kept) depth[id] = parent in depth ? depth[parent] + 1 : 0;
  return Math.max(...depth, 0) > SHALLOW ? GAP.narrowest : GAP.widest;
}

/**
 * The left edges of the boxes.
 * @param {Path[]} kept parents before their children
 * @param {Map<number, Path[]>} children @param {number[]} boxWidths @param {number} promptWidth
 */
export function columns(kept, children, boxWidths, promptWidth) {
  const gap = gapOf(kept);
  /** @type {number[]} */
  const x = [];
  let width = promptWidth;
  for (const { id, parent } of kept) {
    const before = children.get(parent)?.length === 1 ? GAP_OF_ONE : gap;
    x[id] = parent < 0 ? promptWidth + gap / 2 : x[parent] + boxWidths[parent] + before;
    width = Math.max(width, x[id] + boxWidths[id]);
  }
  return { x, width };
}

/**
 * The height of each path together with all that grew from it, and the total height.
 * @param {Path[]} kept parents before their children
 * @param {Map<number, Path[]>} children
 * @param {ReadonlySet<number>} folded paths with a line under their box for texts that are not drawn
 * @param {(path: Path, roomOfChildren: number) => number} heightOfBox px; asked for children first
 */
export function roomsOf(kept, children, folded, heightOfBox) {
  /** @type {number[]} */
  const room = [];
  for (const path of [...kept].reverse()) {
    const own = children.get(path.id) ?? [];
    const below = own.reduce((sum, { id }) => sum + room[id], 0);
    const height = heightOfBox(path, below);
    const gap = height > BOX ? ROW_GAP_OF_LINES : ROW_GAP;
    const under = folded.has(path.id) && own.length ? 2 * UNDER : 0; // as much above, it is centred
    room[path.id] = Math.max(height + gap + under, below);
  }
  const roots = children.get(-1) ?? [];
  return { room, height: roots.reduce((sum, { id }) => sum + room[id], 0) };
}

/**
 * The middle lines of the boxes. Leaves are stacked, and a parent is centred on its children; a
 * parent that is higher than its children gets more room.
 * @param {Path[]} kept parents before their children
 * @param {Map<number, Path[]>} children
 * @param {{ boxHeights: number[], folded: ReadonlySet<number> }} boxes @param {number} promptHeight
 */
function rows(kept, children, { boxHeights, folded }, promptHeight) {
  const rooms = roomsOf(kept, children, folded, ({ id }) => boxHeights[id]);
  const { room } = rooms;
  const sum = (/** @type {Path[]} */ paths) => paths.reduce((all, { id }) => all + room[id], 0);
  /** @type {number[]} */
  const y = [];
  const place = (/** @type {Path[]} */ paths, /** @type {number} */ top) => {
    for (const { id } of paths) {
      y[id] = top + room[id] / 2;
      top += room[id];
    }
  };
  const height = Math.max(promptHeight + ROW_GAP, rooms.height);
  place(children.get(-1) ?? [], (height - rooms.height) / 2);
  for (const { id } of kept) {
    const own = children.get(id) ?? [];
    place(own, y[id] - sum(own) / 2);
  }
  for (const { id } of [...kept].reverse()) {
    const own = children.get(id)?.map((child) => y[child.id]);
    if (!own) continue;
    const wanted = (Math.min(...own) + Math.max(...own)) / 2;
    const most = (room[id] - boxHeights[id]) / 2; // from the middle of the room
    y[id] = Math.min(y[id] + most, Math.max(y[id] - most, wanted));
  }
  return { y, height };
}
