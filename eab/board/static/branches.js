// Which branches are drawn. Branches that are too small to read are folded: a mark at their fork
// stands for them until it is clicked. Texts with the same answer can be joined into one box. The
// user can hide other branches.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { agreeingTexts, joinedPath, lineOf } from "./same_answer.js";

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
    /** The folded branches, by the path that forks. @type {Map<number, Path[]>} */
    this.byFork = new Map();
    /** The boxes of several texts, by each of their paths. @type {Map<number, Path>} */
    this.boxes = new Map();
    /** All paths that have no box of their own. @type {Set<number>} */
    this.folded = new Set();
    /** Texts that may be one box, by the path that they grew from. @type {Map<number, Path[]>} */
    this.agreeing = new Map();
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
    this.agreeing = agreeingTexts(this.store);
    const isSmall = this.smallness();
    for (const path of [...paths.values()].sort((a, b) => a.id - b.id)) {
      const { id, parent } = path;
      const box = this.boxes.get(parent);
      const texts = this.joins && !this.opened.has(id) ? this.agreeing.get(id) : undefined;
      if (box) this.putInto(box, path);
      else if (this.folded.has(parent)) this.folded.add(id);
      else if (parent >= 0 && !this.opened.has(parent) && isSmall(path)) this.fold(path);
      else if (texts) this.boxes.set(id, joinedPath(this.store, path, texts));
    }
  }

  /**
   * @param {Path} box of the path's parent
   * @param {Path} path
   */
  putInto(box, path) {
    box.joined?.all.push(path);
    this.boxes.set(path.id, box);
    this.folded.add(path.id);
  }

  /** @param {Path} path */
  fold(path) {
    this.byFork.set(path.parent, [...(this.byFork.get(path.parent) ?? []), path]);
    this.folded.add(path.id);
  }

  /** Which paths are too small to be drawn. */
  smallness() {
    const { paths } = this.store;
    const leaves = [...paths.values()].filter(({ status }) => status !== "forked").length;
    const light = Math.min(LIGHT, LIGHT_BESIDE_OTHERS / Math.max(1, leaves));
    const dropped = this.store.droppedPaths();
    return (/** @type {Path} */ { id, weights }) =>
      this.folds && (dropped.has(id) || (weights.at(-1)?.weight ?? 1) < light);
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
   * How many branches are folded at the fork of this path, not counting those that start later.
   * @param {number} id
   */
  foldedAt(id) {
    const begun = (/** @type {Path} */ { born }) => born <= this.view.cursor;
    return (this.byFork.get(id) ?? []).filter(begun).length;
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
    for (const id of this.agreeing.keys()) this.opened.delete(id);
    return true;
  }
}
