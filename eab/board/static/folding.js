// Branches that are too small to read are folded: a mark at their fork stands for them, until it is
// clicked.

/** @import { Board } from "./board.js" */
/** @import { Path } from "./types.d.ts" */

const LIGHT = 0.01; // of all probability
const LIGHT_BESIDE_OTHERS = 0.25; // of the mean weight, in a tree of many texts

export class Folding {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.isOn = true;
    /** Paths whose branches are all drawn. @type {Set<number>} */
    this.opened = new Set();
    /** The folded branches, by the path that forks. @type {Map<number, Path[]>} */
    this.byFork = new Map();
    /** The same, by their ids. @type {Set<number>} */
    this.folded = new Set();
  }

  clear() {
    this.opened.clear();
    this.byFork.clear();
    this.folded.clear();
  }

  /** Find the branches to fold; paths or weights may have changed. */
  update() {
    this.byFork.clear();
    this.folded.clear();
    const { paths, sides } = this.board;
    if (!this.isOn || sides) return;
    const leaves = [...paths.values()].filter(({ status }) => status !== "forked").length;
    const light = Math.min(LIGHT, LIGHT_BESIDE_OTHERS / Math.max(1, leaves));
    const dropped = this.board.records.droppedPaths();
    for (const path of paths.values()) {
      const isSmall = dropped.has(path.id) || (path.weights.at(-1)?.weight ?? 1) < light;
      if (!isSmall || path.parent < 0 || this.opened.has(path.parent)) continue;
      this.folded.add(path.id);
      const before = this.byFork.get(path.parent);
      if (before) before.push(path);
      else this.byFork.set(path.parent, [path]);
    }
  }

  /**
   * Whether a path is in a folded branch.
   * @param {number} id
   */
  hides(id) {
    if (!this.folded.size) return false;
    return [...this.board.records.lineageOf(id)].some((ancestor) => this.folded.has(ancestor));
  }

  /**
   * How many branches are folded at the fork of this path; those that have not begun do not count.
   * @param {number} id
   */
  countAt(id) {
    const begun = (/** @type {Path} */ { born }) => born <= this.board.cursor;
    return (this.byFork.get(id) ?? []).filter(begun).length;
  }

  /** @param {number} id of the path that forks */
  open(id) {
    this.opened.add(id);
    this.board.rearrange();
  }

  /** Draw all branches, or fold the small ones. */
  toggle() {
    this.isOn = !this.isOn;
    this.opened.clear();
    this.board.rearrange();
  }
}
