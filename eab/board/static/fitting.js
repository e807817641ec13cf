// How much text each box of the tree holds. A box with branches is as narrow as possible without
// being higher than its descendants; leaves reach the right edge. Texts are shortened, the longest
// first, before a tree is drawn too small to read.

/** @import { Camera } from "./camera.js" */
/** @import { FittedText } from "./label.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { Arrangement, BoxSizes, Layout, Path, Size } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { SMALLEST_WHOLE, TINY } from "./camera.js";
import { characterWidth, FONT_SIZE } from "./elements.js";
import { wrapped } from "./label.js";
import {
  arranged,
  BOX_LINE,
  boxHeight,
  columns,
  linesFitting,
  MARKS,
  PADDING,
  promptEnd,
  promptLine,
  roomsOf,
  treeOrder,
} from "./layout.js";
import { childrenOf } from "./paths.js";

const MOST_WHOLE = 100; // texts; more are not folded one by one
// Texts are folded before they are drawn in fewer px; in a narrow picture, that would leave few.
const SMALLEST = { wide: 11, narrow: 9 };
const NARROW = 500; // px
const STUB_LINE = 14; // characters of a pruned path
const MOST_LINES = 40;
const LINES_OF_A_LEAF = [1, 2, 3, 4, 6, 9, 14]; // values to try
// Characters; the boxes on their left are narrowed before leaves get less than `wanted`.
const LEAF_LINE = { wanted: 22, shortest: 10 };
const UNEVEN = 1.15; // whole words do not fill their lines
const ATTEMPTS = 3; // to keep to a width: the characters of a text may be wider than the mean
const NARROWER = 0.85; // factor per attempt, until the lines fit
const NARROWEST = 5; // characters; at worst, only longer words get wider boxes than this
// Shares of the readable scale, and the share of omitted characters from which each may be used.
const SMALLER_PRESENTED = [
  { share: 0.93, from: 0.03 },
  { share: 0.82, from: 0.05 },
  { share: 0.72, from: 0.1 },
];

/**
 * The text and the children of each path, by its id; and the paths after which texts are folded.
 * @typedef {{ kept: Path[], folded: Set<number>, prompt: FittedText, children: Map<number, Path[]>, texts: FittedText[] }} Texts
 */

/** @param {RunStore} store @param {ViewState} view @param {Camera} camera @returns {Layout} */
export function arrange({ paths, run }, view, camera) {
  const { branches } = view;
  const rank = treeOrder([...paths.values()]);
  const ranked = () => [...branches.drawn()].sort((a, b) => rank[a.id] - rank[b.id]);
  let kept = ranked();
  const fit = () => fittest(kept, run.prompt, camera, view);
  let best = fit();
  while (foldsToFit(view, kept, camera) && isTooLarge(best, camera) && branches.foldLightest()) {
    kept = ranked();
    best = fit();
  }
  return { ...best, rank };
}

/**
 * Whether texts are folded rather than drawn too small to read. A very large tree is an overview:
 * its small branches share boxes (in_sight.js).
 * @param {ViewState} view @param {Path[]} kept @param {Camera} camera
 */
function foldsToFit({ aligned, outlined, presents }, kept, { showsWhole }) {
  const leaves = kept.filter(({ status }) => status !== "forked");
  return !aligned && !outlined && !presents && showsWhole && leaves.length <= MOST_WHOLE;
}

/** @param {Arrangement} best @param {Camera} camera */
function isTooLarge({ width, height }, camera) {
  const room = camera.room();
  const scale = (room.width < NARROW ? SMALLEST.narrow : SMALLEST.wide) / FONT_SIZE;
  return (width + MARKS) * scale > room.width || height * scale > room.height;
}

/**
 * The arrangement that omits the fewest characters; if several do, the one at the largest scale.
 * @param {Path[]} kept parents before their children
 * @param {string} prompt @param {Camera} camera @param {ViewState} view @returns {Arrangement}
 */
function fittest(kept, prompt, camera, { aligned, branches, fitted: known }) {
  const texts = textsOf(kept, prompt, new Set(branches.byFork.keys()), known);
  const at = (/** @type {Size} */ room, /** @type {number} */ lines) => {
    let wanted = room.width;
    for (let attempt = 1; ; attempt += 1) {
      const { sizes, longest } = fitted(texts, { ...room, width: wanted }, lines);
      const made = arranged(texts.prompt, kept, texts.texts, sizes, longest);
      const over = made.width + MARKS - room.width;
      if (over <= 0 || attempt === ATTEMPTS) return made;
      wanted -= over;
    }
  };
  const { readable } = camera;
  const largest = Math.max(1, readable);
  const room = roomAt(camera, texts, largest);
  if (aligned) return at({ ...room, height: 0 }, 1); // one line each, over the steps
  let best = at(room, LINES_OF_A_LEAF[0]);
  // No words are readable at that size, so line lengths do not matter, and trying takes seconds.
  if (camera.showsWhole && camera.room().height < TINY * best.height) return best;
  let highest = room.height;
  const all = texts.texts.reduce((sum, { words }) => sum + lengthOf(words), 0);
  for (const { share, from } of scalesOf(camera, largest)) {
    // A tree that is too high is drawn smaller anyway, which leaves more room for its texts.
    if (best.leftOut < from * all && best.height <= highest) break;
    const scale = share * readable;
    const room = roomAt(camera, texts, scale);
    highest = room.height;
    for (const lines of LINES_OF_A_LEAF) {
      const next = at(room, lines);
      if (isBetter(next, best, room)) best = next;
    }
    if (!best.leftOut && best.height <= room.height) break;
  }
  return best;
}

/**
 * The shares of the readable scale to try, largest first. A tree that is not shown whole is not
 * drawn below the readable scale.
 * @param {Camera} camera @param {number} largest
 */
function scalesOf({ readable, showsWhole, view }, largest) {
  const larger = readable < largest ? [{ share: largest / readable, from: 0 }] : [];
  const smaller = view.presents && showsWhole ? SMALLER_PRESENTED : [];
  return [...larger, { share: 1, from: 0 }, ...smaller];
}

/**
 * @param {Arrangement} next @param {Arrangement} best
 * @param {Size} room that they should fit
 */
function isBetter(next, best, room) {
  const [over, before] = [next, best].map(({ width, height }) => {
    return Math.max(0, height - room.height) + Math.max(0, width + MARKS - room.width);
  });
  if (over !== before) return over < before;
  if (next.leftOut !== best.leftOut) return next.leftOut < best.leftOut;
  return next.height < best.height;
}

/**
 * @param {Path[]} kept @param {string} prompt @param {Set<number>} folded
 * @param {import("./label.js").FittedTexts} known @returns {Texts}
 */
function textsOf(kept, prompt, folded, known) {
  const all = kept.map(({ tokens }) => tokens.map(({ piece }) => piece).join(""));
  const [beginning, ...fitted] = known.keep([promptEnd(prompt), ...all]);
  /** @type {FittedText[]} */
  const texts = [];
  for (const [at, text] of fitted.entries()) texts[kept[at].id] = text;
  return { kept, folded, prompt: beginning, children: childrenOf(kept), texts };
}

/**
 * The room for the tree in its own pixels. A tree that is too high even with one line per text is
 * drawn smaller as a whole, so it may be wider.
 * @param {Camera} camera @param {Texts} texts @param {number} scale @returns {Size}
 */
function roomAt(camera, { kept, children, folded }, scale) {
  const { width, height } = camera.room();
  const whole = height / roomsOf(kept, children, folded, (path) => boxHeight(path, 1)).height;
  const drawn = Math.max(SMALLEST_WHOLE, Math.min(scale, whole));
  return { width: width / (camera.showsWhole ? drawn : scale), height: height / scale };
}

/**
 * How much each box holds if boxes are narrowed as if leaves on their right had this many lines.
 * @param {Texts} texts @param {Size} room @param {number} lines
 * @returns {{ sizes: BoxSizes, longest: number }}
 */
function fitted(texts, room, lines) {
  const narrowest = narrowestLines(texts, lines);
  let [longest, ofLeaves] = [BOX_LINE.longest, LEAF_LINE.wanted];
  for (;;) {
    const { perLine, right } = linesUpTo(texts, narrowest, { longest, ofLeaves }, room);
    if (right <= room.width || ofLeaves === LEAF_LINE.shortest) {
      const most = linesWithin(texts, perLine, room.height);
      return { sizes: { perLine, most, folded: texts.folded }, longest };
    }
    if (longest > NARROWEST) longest = Math.max(NARROWEST, Math.floor(longest * NARROWER));
    else ofLeaves = Math.max(LEAF_LINE.shortest, Math.floor(ofLeaves * NARROWER));
  }
}

/**
 * The least characters per line with which a box is no higher than its descendants, if leaves have
 * this many lines.
 * @param {Texts} texts @param {number} lines
 */
function narrowestLines({ kept, children, texts }, lines) {
  /** @type {number[]} */
  const below = [];
  /** @type {number[]} */
  const narrowest = [];
  for (const { id, status } of [...kept].reverse()) {
    const own = children.get(id) ?? [];
    const isStub = status === "pruned";
    const ofLeaf = isStub ? 1 : lines;
    below[id] = own.length ? own.reduce((sum, child) => sum + below[child.id], 0) : ofLeaf;
    narrowest[id] = isStub ? STUB_LINE : charactersNeeded(texts[id].words, below[id]);
  }
  return narrowest;
}

/**
 * About how many characters per line these words need to fit into this many lines.
 * @param {number[]} words their lengths
 * @param {number} lines
 */
function charactersNeeded(words, lines) {
  const length = lengthOf(words);
  const needed = Math.ceil((length / lines) * (lines > 1 ? UNEVEN : 1));
  return Math.max(Math.min(length, BOX_LINE.shortest), needed);
}

/** @param {number[]} words their lengths */
function lengthOf(words) {
  return words.reduce((sum, word) => sum + word + 1, -1);
}

/**
 * Characters per line of each box, at most `longest` for boxes with branches, and the right edge of
 * the tree if leaves get no more than they need.
 * @param {Texts} texts
 * @param {number[]} narrowest characters, by the path's id
 * @param {{ longest: number, ofLeaves: number }} limits characters
 * @param {Size} room
 */
function linesUpTo({ kept, prompt, children, texts }, narrowest, { longest, ofLeaves }, room) {
  const isLeaf = (/** @type {Path} */ { id }) => !children.has(id);
  /** @type {number[]} */
  const perLine = [];
  for (const path of kept) {
    const { id } = path;
    const most = isLeaf(path) ? ofLeaves : longest;
    const { words, whole } = texts[id];
    const wanted = Math.max(whole, Math.min(most, narrowest[id]));
    perLine[id] = Math.max(1, wrapped(words, wanted).longest);
  }
  const promptWidth = widthOf(promptLine(prompt, longest));
  const { x, width } = columns(kept, children, perLine.map(widthOf), promptWidth);
  const right = width + MARKS;
  for (const path of kept) {
    const { id, status } = path;
    if (!isLeaf(path) || status === "pruned") continue;
    const free = (Math.max(room.width, right) - MARKS - PADDING - x[id]) / characterWidth();
    perLine[id] = Math.max(perLine[id], Math.min(lengthOf(texts[id].words), Math.floor(free)));
  }
  return { perLine, right };
}

/** @param {number} characters per line */
function widthOf(characters) {
  return characters * characterWidth() + PADDING;
}

// ---- heights

/**
 * Lines of each box that keep the tree within a height: all lines of the text, or the same limit
 * for all boxes; what is left of the height goes, line by line, to the texts that lose most.
 * @param {Texts} texts
 * @param {number[]} perLine characters, by the path's id
 * @param {number} highest px
 */
function linesWithin(texts, perLine, highest) {
  const { kept } = texts;
  /** @type {number[]} */
  const full = [];
  for (const { id, status } of kept) {
    const { lines } = wrapped(texts.texts[id].words, perLine[id]);
    full[id] = status === "pruned" ? 1 : Math.min(MOST_LINES, lines);
  }
  const under = (/** @type {number} */ limit) => {
    return linesUnder(texts, full, new Array(full.length).fill(limit));
  };
  let limit = Math.max(1, ...full.filter(Boolean));
  let best = under(limit);
  while (best.height > highest && limit > 1) {
    limit -= 1;
    best = under(limit);
  }
  if (best.height > highest) return full.map(() => 1); // rows may come closer than lines
  const limits = full.map(() => limit);
  const shortened = kept.filter(({ id }) => best.lines[id] < full[id]);
  const leftOut = (/** @type {Path} */ { id }) => (full[id] - best.lines[id]) * perLine[id];
  for (const { id } of shortened.sort((a, b) => leftOut(b) - leftOut(a))) {
    limits[id] += 1;
    const higher = linesUnder(texts, full, limits);
    if (higher.height <= highest) best = higher;
    else limits[id] -= 1;
  }
  return best.lines;
}

/**
 * Lines of each box: those of its text, up to its limit or the height of its descendants.
 * @param {Texts} texts
 * @param {number[]} full lines of each text, by the path's id
 * @param {number[]} limits
 */
function linesUnder({ kept, children, folded }, full, limits) {
  /** @type {number[]} */
  const lines = [];
  const { height } = roomsOf(kept, children, folded, (path, roomOfChildren) => {
    const { id } = path;
    lines[id] = Math.min(full[id], Math.max(limits[id], linesFitting(roomOfChildren)));
    return boxHeight(path, lines[id]);
  });
  return { lines, height };
}
