// Texts with the same answer, drawn as one box: it shows the heaviest text, from the fork below
// which all texts give that answer. Such a box is a path of its own, with `joined`.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path } from "./types.d.ts" */
import { weightAt } from "./path_state.js";

/**
 * The texts that grew from a path, by its id, if there are several and all give the same answer.
 * @param {RunStore} store
 */
export function agreeingTexts(store) {
  const { paths } = store;
  const { answers } = store.deciding;
  const answerOf = (/** @type {Path} */ { id }) => answers.get(id) ?? id;
  /** @type {Map<number, Path[]>} */
  const under = new Map();
  /** @type {Set<number>} */
  const differing = new Set();
  for (const text of answers.size ? paths.values() : []) {
    if (text.status === "forked" || text.status === "pruned") continue;
    /** @type {Path | undefined} */
    let at = text;
    // If the texts under a path differ, those under its ancestors differ too.
    for (; at && !differing.has(at.id); at = paths.get(at.parent)) {
      const texts = under.get(at.id) ?? [];
      texts.push(text);
      under.set(at.id, texts);
      if (answerOf(texts[0]) !== answerOf(text)) differing.add(at.id);
    }
  }
  return new Map([...under].filter(([id, texts]) => texts.length > 1 && !differing.has(id)));
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
