// Which paths are bright: while one is under the pointer or selected, it and its relatives are.

/** @import { Board } from "./board.js" */

export class Highlight {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    /** The path under the pointer. @type {number | null} */
    this.hovered = null;
    /** The highlighted path and its ancestors. @type {Set<number> | null} */
    this.lineage = null;
  }

  clear() {
    this.hovered = this.lineage = null;
    this.board.root.classList.remove("highlighting");
  }

  /** The path under the pointer, otherwise the selected one. */
  path() {
    return this.hovered ?? this.board.selection.path;
  }

  /** @param {number | null} path the one under the pointer */
  hover(path) {
    this.hovered = path;
    const before = this.names();
    const highlighted = this.path();
    this.lineage = highlighted === null ? null : this.board.records.lineageOf(highlighted);
    this.board.root.classList.toggle("highlighting", this.lineage !== null);
    if (this.names() !== before) this.board.render();
  }

  names() {
    return [...(this.lineage ?? [])].join();
  }

  /**
   * Classes of a path: its side of a diff, and whether it is highlighted or related to the
   * highlighted one (an ancestor, or grown out of it).
   * @param {number} id
   */
  classOf(id) {
    const { records, sides } = this.board;
    const side = sides ? ` side-${sides[id]}` : "";
    const highlighted = this.path();
    if (this.lineage === null || highlighted === null) return side;
    if (this.lineage.has(id)) return `${side} highlighted related`;
    return records.lineageOf(id).has(highlighted) ? `${side} related` : side;
  }
}
