// Which branches are drawn. Those that are too small to read are folded: a mark at their fork stands
// for them until it is clicked. The user can hide others.

/** @import { Board } from "./board.js" */
/** @import { Path } from "./types.d.ts" */

const LIGHT = 0.01; // of all probability
const LIGHT_BESIDE_OTHERS = 0.25; // of the mean weight, in a tree of many texts

export class Branches {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    /** Whether small branches are folded. */
    this.folds = true;
    /** Paths that the user hid, with all that grew from them. @type {Set<number>} */
    this.hidden = new Set();
    /** Paths whose branches are all drawn. @type {Set<number>} */
    this.opened = new Set();
    /** The folded branches, by the path that forks. @type {Map<number, Path[]>} */
    this.byFork = new Map();
    /** All paths in them. @type {Set<number>} */
    this.folded = new Set();
  }

  clear() {
    this.hidden.clear();
    this.opened.clear();
    this.byFork.clear();
    this.folded.clear();
  }

  /** Find the branches to fold; paths or weights may have changed. */
  update() {
    this.byFork.clear();
    this.folded.clear();
    const { paths, sides } = this.board;
    if (!this.folds || sides) return;
    const leaves = [...paths.values()].filter(({ status }) => status !== "forked").length;
    const light = Math.min(LIGHT, LIGHT_BESIDE_OTHERS / Math.max(1, leaves));
    const dropped = this.board.records.droppedPaths();
    for (const path of [...paths.values()].sort((one, other) => one.id - other.id)) {
      const isSmall = dropped.has(path.id) || (path.weights.at(-1)?.weight ?? 1) < light;
      const isInside = this.folded.has(path.parent); // of a folded branch
      const begins = isSmall && path.parent >= 0 && !this.opened.has(path.parent);
      if (isInside || begins) this.folded.add(path.id);
      if (isInside || !begins) continue;
      const before = this.byFork.get(path.parent);
      if (before) before.push(path);
      else this.byFork.set(path.parent, [path]);
    }
  }

  /** Whether all branches are drawn. */
  get areAllDrawn() {
    return !this.hidden.size && !this.folded.size;
  }

  /** Whether a path is in a folded branch. @param {number} id */
  isFolded(id) {
    return this.folded.has(id);
  }

  /** Whether a path is in a branch that the user hid. @param {number} id */
  isHidden(id) {
    if (!this.hidden.size) return false;
    return [...this.board.records.lineageOf(id)].some((ancestor) => this.hidden.has(ancestor));
  }

  /**
   * How many branches are folded at the fork of this path; those that have not begun do not count.
   * @param {number} id
   */
  foldedAt(id) {
    const begun = (/** @type {Path} */ { born }) => born <= this.board.cursor;
    return (this.byFork.get(id) ?? []).filter(begun).length;
  }

  /** @param {number} id of the path that forks */
  open(id) {
    this.opened.add(id);
    this.board.rearrange();
  }

  hideSelected() {
    const { board } = this;
    const { path } = board.selection;
    if (path === null || (board.paths.get(path)?.parent ?? -1) < 0) return;
    this.hidden.add(path);
    board.selection.drop();
    board.rearrange();
  }

  /** Draw all branches, or fold the small ones again. */
  toggle() {
    if (!this.areAllDrawn || this.folds) return this.showAll();
    this.folds = true;
    this.board.rearrange();
  }

  showAll() {
    this.hidden.clear();
    this.opened.clear();
    this.folds = false;
    this.board.focus(null);
  }
}
