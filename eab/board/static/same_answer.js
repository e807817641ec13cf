// Texts with the same answer that are drawn as one box: the words of the heaviest of them, from the
// fork on below which all texts give that answer. Such a box is a path of its own, with `joined`.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path } from "./types.d.ts" */
import { weightAt } from "./path_state.js";

/**
 * The texts that grew from a path, by its id: where they are several and all give one answer.
 * @param {RunStore} store
 */
export function agreeingTexts(store) {
  const { paths } = store;
  const { answers } = store.deciding;
  /** @type {Map<number, Path[]>} */
  const texts = new Map();
  if (!answers.size) return texts;
  for (const path of paths.values()) {
    if (path.status === "forked" || path.status === "pruned") continue;
    for (const id of store.lineageOf(path.id)) texts.set(id, [...(texts.get(id) ?? []), path]);
  }
  const given = (/** @type {Path[]} */ below) =>
    new Set(below.map(({ id }) => answers.get(id) ?? id));
  return new Map([...texts].filter(([, below]) => below.length > 1 && given(below).size === 1));
}

/**
 * @param {RunStore} store @param {Path} root
 * @param {Path[]} texts that grew from it
 * @returns {Path}
 */
export function joinedPath(store, root, texts) {
  const weigh = (/** @type {Path} */ path) => weightAt(path, store.lastStep);
  const heaviest = texts.reduce((a, b) => (weigh(b) > weigh(a) ? b : a));
  const whole = store.lineThrough(heaviest);
  const line = whole.slice(whole.indexOf(root));
  const { id, parent, born, share } = root;
  const tokens = line.flatMap((path) => path.tokens);
  const joined = { answer: store.deciding.answers.get(heaviest.id) ?? "", line, all: [root] };
  return { ...heaviest, id, parent, born, share, tokens, joined };
}

/** The paths whose words are in a box. @param {Path} box */
export function lineOf(box) {
  return box.joined?.line ?? [box];
}

/**
 * The path that a token of a box belongs to, and its index there.
 * @param {Path} box
 * @param {number} token its index in the box
 */
export function placeIn(box, token) {
  let index = token;
  for (const path of lineOf(box)) {
    if (index < path.tokens.length) return { path, index };
    index -= path.tokens.length;
  }
  return { path: box, index: token };
}
