// Where the boxes stand when some are folded to chips or left out: what eab/board/layout.py says, closed up again.

import { fold, textWidth } from "./svg.js";

const ROW = 28; // these as in eab/board/layout.py
const STUB_ROW = 20;
const GAP = 58;
const PADDING = 20;
const LONGEST = 44; // characters of a box
const LONGEST_IN_FOCUS = 120;
const CHIP = 14; // characters of its text that a chip keeps
const STRETCH = 4; // tokens; shorter paths stay as they are

// The words in a path's box once `count` of its tokens are there, and the place of each token in it.
export function labelOf(board, path, count) {
  const pieces = path.tokens.slice(0, count).map((token) => token[0]);
  if (board.folded && count >= STRETCH) return chip(pieces);
  return fold(pieces, board.focused === null ? LONGEST : LONGEST_IN_FOCUS);
}

function chip(pieces) {
  const text = `${[...pieces.join("")].slice(0, CHIP).join("")} … ${pieces.length} tokens`;
  const width = textWidth(text);
  return { text, width, cells: pieces.map((_, index) => [index, index + 1].map((edge) => (edge * width) / pieces.length)) };
}

export function arrange(board, told) {
  if (!board.folded && board.focused === null) return told;
  const kept = [...board.paths.values()].filter((path) => board.keeps(path.id)).sort((a, b) => a.id - b.id);
  const [x, box] = [[], []];
  for (const path of kept) { // parents are born before their children
    box[path.id] = labelOf(board, path, path.tokens.length).width + PADDING;
    x[path.id] = path.parent < 0 ? told.prompt_box + GAP / 2 : x[path.parent] + box[path.parent] + GAP;
  }
  const { y, height } = rows(kept, told);
  const width = Math.max(told.prompt_box, ...kept.map((path) => x[path.id] + box[path.id]));
  return { x, y, box, prompt_box: told.prompt_box, width, height };
}

// Leaves keep their order; a parent stands in the middle of its children.
function rows(kept, told) {
  const children = new Map();
  for (const path of kept) children.set(path.parent, [...(children.get(path.parent) ?? []), path.id]);
  const y = [];
  let height = 0;
  for (const path of kept.filter((one) => !children.has(one.id)).sort((a, b) => told.y[a.id] - told.y[b.id])) {
    const row = path.status === "pruned" ? STUB_ROW : ROW;
    y[path.id] = height + row / 2;
    height += row;
  }
  for (const path of [...kept].reverse()) {
    const own = children.get(path.id)?.map((child) => y[child]);
    if (own) y[path.id] = (Math.min(...own) + Math.max(...own)) / 2;
  }
  return { y, height: Math.max(ROW, height) };
}
