// A path after a step, and its children; and paths with the same answer, drawn as one box: it shows
// the heaviest text, from the fork below which all texts give that answer. Such a box is a path of
// its own, with `joined`.
//
// `Branches` says which are drawn. Branches of small weight, and the lightest texts of a tree that
// has no room for all, are folded: a mark at their fork stands for them until it is clicked. Texts
// with the same answer can be joined into one box. The user can hide other branches.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Status } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */

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
  const isEnd = (/** @type {Path} */ text) => ["live", "finished"].includes(statusAt(text, step));
  return path.joined.all.filter((text) => text.born <= step && isEnd(text));
}

/**
 * The paths from which several texts grew that all give the same answer.
 * @param {RunStore} store @param {Path[]} inOrder its paths, parents before their children
 */
function agreeingPaths({ deciding: { answers } }, inOrder) {
  /** Of the texts that grew from a path; null if they differ. @type {Map<number, { answer: string | number | null, texts: number }>} */
  const under = new Map();
  for (const path of answers.size ? inOrder.toReversed() : []) {
    const { id, parent } = path;
    const own = isText(path) ? { answer: answers.get(id) ?? id, texts: 1 } : under.get(id);
    if (!own) continue;
    under.set(id, own);
    if (parent < 0) continue;
    const before = under.get(parent) ?? { ...own, texts: 0 };
    const answer = before.answer === own.answer ? own.answer : null;
    under.set(parent, { answer, texts: before.texts + own.texts });
  }
  const agreeing = [...under].filter(([, { answer, texts }]) => answer !== null && texts > 1);
  return new Set(agreeing.map(([id]) => id));
}

/** Whether a text ends in the path. @param {Path} path */
function isText({ status }) {
  return status === "live" || status === "finished";
}

/** One box for all texts that grew from a path. @param {RunStore} store @param {Path} root @returns {Path} */
function joinedPath(store, root) {
  const texts = store.grownFrom(root.id).filter(isText);
  texts.sort((a, b) => a.id - b.id); // of equal weights, the first is shown
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

const LIGHT = 0.01; // of the total probability
const LIGHT_BESIDE_OTHERS = 0.25; // of the mean weight, in a tree of many texts

export class Branches {
  /** @param {RunStore} store @param {ViewState} view */
  constructor(store, view) {
    this.store = store;
    this.view = view;
    /** Whether small branches are folded. */
    this.folds = true;
    /** Whether texts with the same answer are one box. */
    this.joins = false;
    /** Paths that the user hid, with all that grew from them. @type {Set<number>} */
    this.hidden = new Set();
    /** Paths whose branches are all drawn. @type {Set<number>} */
    this.opened = new Set();
    /** The folded paths, by the last path before them that is drawn. @type {Map<number, Path[]>} */
    this.byFork = new Map();
    /** The boxes of several texts, by each of their paths. @type {Map<number, Path>} */
    this.boxes = new Map();
    /** The last path that is drawn before each path without a box of its own. @type {Map<number, number>} */
    this.folded = new Map();
    /** The paths that may be one box with all that grew from them. @type {Set<number>} */
    this.agreeing = new Set();
    /** The paths in view, and their boxes; null until they are asked for. */
    this.lookedAt = /** @type {Path[] | null} */ (null);
    this.drawnBoxes = /** @type {Path[] | null} */ (null);
    /** Counts the changes of which branches are drawn, and of the paths. */
    this.changes = 0;
  }

  clear() {
    this.hidden.clear();
    this.opened.clear();
    this.forget();
  }

  forget() {
    for (const map of [this.byFork, this.boxes, this.folded, this.agreeing]) map.clear();
    this.lookedAt = this.drawnBoxes = null;
    this.changes += 1;
  }

  /** Find the branches to fold and the texts to join; paths or weights may have changed. */
  update() {
    this.forget();
    const { paths, sides } = this.store;
    if (sides) return;
    const inOrder = inTreeOrder([...paths.values()]);
    this.agreeing = agreeingPaths(this.store, inOrder);
    const isSmall = this.smallness(inOrder);
    for (const path of inOrder) {
      const { id, parent } = path;
      const box = this.boxes.get(parent);
      const fork = this.folded.get(parent);
      if (box) this.putInto(box, path);
      else if (fork !== undefined) this.fold(path, fork);
      else if (parent >= 0 && !this.opened.has(parent) && isSmall(path)) this.fold(path, parent);
      else if (this.joins && !this.opened.has(id) && this.agreeing.has(id))
        this.boxes.set(id, joinedPath(this.store, path));
    }
  }

  /**
   * @param {Path} box of the path's parent
   * @param {Path} path
   */
  putInto(box, path) {
    box.joined?.all.push(path);
    this.boxes.set(path.id, box);
    this.folded.set(path.id, box.id);
  }

  /** @param {Path} path @param {number} fork the last path before it that is drawn */
  fold(path, fork) {
    const folded = this.byFork.get(fork);
    if (folded) folded.push(path);
    else this.byFork.set(fork, [path]);
    this.folded.set(path.id, fork);
  }

  /**
   * Fold the text of least weight that is drawn, with the paths that lead only to it; of equal
   * texts, one after most forks. What the user opened or selected stays.
   * @returns {boolean} whether there was one to fold
   */
  foldLightest() {
    const drawn = this.drawn();
    const children = childrenOf(drawn);
    const texts = drawn
      .filter((path) => !children.has(path.id) && path !== this.view.box)
      .map((path) => ({ ...this.wayTo(path, children), weight: path.weights.at(-1)?.weight ?? 1 }))
      .filter(({ top }) => top.parent >= 0 && !this.opened.has(top.parent));
    texts.sort((a, b) => a.weight - b.weight || b.forks - a.forks);
    if (!this.folds || !texts.length) return false;
    const [{ top }] = texts;
    for (const path of this.store.grownFrom(top.id)) {
      this.byFork.delete(path.id);
      this.fold(path, top.parent);
    }
    this.drawnBoxes = null;
    this.changes += 1;
    return true;
  }

  /**
   * The first path that leads only to this text, and the number of forks before the text.
   * @param {Path} text @param {Map<number, Path[]>} children drawn ones, by their parent
   */
  wayTo(text, children) {
    const way = [...this.store.lineageOf(text.id)];
    const shared = way.findIndex((id) => (children.get(id)?.length ?? 0) > 1);
    const top = this.store.paths.get(way[Math.max(0, shared - 1)]) ?? text;
    return { top: shared < 0 ? { ...top, parent: -1 } : top, forks: way.length };
  }

  /** Which paths are too small to be drawn. @param {Path[]} inOrder parents before their children */
  smallness(inOrder) {
    const leaves = inOrder.filter(({ status }) => status !== "forked").length;
    const light = Math.min(LIGHT, LIGHT_BESIDE_OTHERS / Math.max(1, leaves));
    const dropped = this.store.droppedPaths(inOrder);
    return (/** @type {Path} */ { id, status, weights }) =>
      this.folds &&
      status !== "given" &&
      (dropped.has(id) || (weights.at(-1)?.weight ?? 1) < light);
  }

  /** Whether all branches are drawn. */
  get areAllDrawn() {
    return !this.hidden.size && !this.folded.size;
  }

  /** All paths in view, including folded and joined ones; cached until `update`. */
  inView() {
    const { paths } = this.store;
    this.lookedAt ??= [...paths.values()].filter(({ id }) => this.view.isLookedAt(id));
    return this.lookedAt;
  }

  /** The paths that have a box, as the box shows them; cached until `update`. */
  drawn() {
    this.drawnBoxes ??= this.inView()
      .filter(({ id }) => !this.folded.has(id))
      .map((path) => this.boxOf(path));
    return this.drawnBoxes;
  }

  /** The box of a path, or of the texts that it is joined with. @param {Path} path */
  boxOf(path) {
    return this.boxes.get(path.id) ?? path;
  }

  /** Whether the words of a path are in the picture. @param {Path} path */
  isShown(path) {
    return this.drawn().some((box) => lineOf(box).includes(path));
  }

  /** Whether a path is in a branch that the user hid. @param {number} id */
  isHidden(id) {
    if (!this.hidden.size) return false;
    return [...this.store.lineageOf(id)].some((ancestor) => this.hidden.has(ancestor));
  }

  /**
   * The folded texts after this path, not counting those that start after the cursor.
   * @param {number} id
   */
  foldedAt(id) {
    const { cursor } = this.view;
    const begun = (this.byFork.get(id) ?? []).filter(({ born }) => born <= cursor);
    const ends = begun.filter((path) => statusAt(path, cursor) !== "forked");
    const texts = ends.filter((path) => statusAt(path, cursor) !== "pruned");
    const weight = texts.reduce((sum, path) => sum + weightAt(path, cursor), 0);
    return { count: (texts.length ? texts : ends).length, weight };
  }

  /** Draw all branches: fold, join and hide none. */
  showAll() {
    this.hidden.clear();
    this.opened.clear();
    this.folds = this.joins = false;
  }

  /** @returns {boolean} whether there are texts with the same answer */
  toggleJoins() {
    if (!this.agreeing.size) return false;
    this.joins = !this.joins;
    for (const id of this.agreeing) this.opened.delete(id);
    return true;
  }
}
