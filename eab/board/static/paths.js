// A path after a step, and its children; and paths with the same answer, drawn as one box: it shows
// the heaviest text, from the fork below which all texts give that answer. Such a box is a path of its
// own, with `joined`.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Status } from "./types.d.ts" */

/** How many of its tokens exist after the step. @param {Path} path @param {number} step */
export function tokenCountAt(path, step) {
  return Math.max(0, Math.min(path.tokens.length, step - path.born + 1));
}

/** The text of the first `count` tokens. @param {Path} path @param {number} count */
export function textOf(path, count) {
  return path.tokens
    .slice(0, count)
    .map((token) => token.piece)
    .join("");
}

/** @param {Path} path @param {number} step @returns {Status} */
export function statusAt(path, step) {
  const lastStep = path.born + path.tokens.length - 1;
  if (path.status === "forked") return step > lastStep ? "forked" : "live";
  const since = path.status === "pruned" ? Math.max(lastStep, path.touched) : lastStep;
  return step >= since ? path.status : "live";
}

/** @param {Path} path @param {number} step @returns {number} */
export function weightAt(path, step) {
  if (path.joined) return textsAt(path, step).reduce((sum, text) => sum + weightAt(text, step), 0);
  const change = path.weights.findLast((weight) => weight.step <= step) ?? path.weights[0];
  return change.weight;
}

/**
 * The texts that end in the box of a path; none once it has forked.
 * @param {Path} path @param {number} step
 */
export function textsAt(path, step) {
  if (!path.joined) return statusAt(path, step) === "forked" ? [] : [path];
  const isText = (/** @type {Path} */ text) => ["live", "finished"].includes(statusAt(text, step));
  return path.joined.all.filter((text) => text.born <= step && isText(text));
}

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
    if (!["live", "finished"].includes(text.status)) continue;
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

/** Whether it is a branch of a fork. @param {Path} path */
export function isOfFork(path) {
  return path.parent >= 0 && !path.rest && path.status !== "given";
}

/** The probability of its text. @param {RunStore} store @param {Path} path */
export function textProbability({ paths }, path) {
  let product = 1;
  for (let at = /** @type {Path | undefined} */ (path); at; at = paths.get(at.parent))
    for (const { probability } of at.tokens) product *= Math.max(0, probability);
  return product;
}

/** Parents before their children. @param {Path[]} paths */
export function inTreeOrder(paths) {
  const children = childrenOf(paths);
  /** @type {Path[]} */
  const ordered = [];
  const pending = [...(children.get(-1) ?? [])];
  for (let path = pending.pop(); path; path = pending.pop()) {
    ordered.push(path);
    pending.push(...(children.get(path.id) ?? []).reverse());
  }
  return ordered;
}

/** The children of each path, in order of birth, by its id; -1: the prompt. @param {Path[]} paths */
export function childrenOf(paths) {
  /** @type {Map<number, Path[]>} */
  const children = new Map();
  for (const path of [...paths].sort((a, b) => a.id - b.id)) {
    const siblings = children.get(path.parent);
    if (siblings) siblings.push(path);
    else children.set(path.parent, [path]);
  }
  return children;
}
