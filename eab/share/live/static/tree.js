// Mirrors eab/engine/caches/tree.py, with rows.py: all paths of a run in one set of rows, each
// written once. A path is a list of rows; a fork copies the list, never K or V. When the tensors
// grow, and what is reported of them, is in eab/board/static/run.js.

import { KvRows } from "../../../board/static/run.js";

/**
 * @typedef {{
 *   ids: number[], positions: number[], rows: number[], seen: number[][], logitsIndices: number[],
 *   growths: object[],
 * }} ForwardBatch The new tokens, path after path: where K and V go, the rows of their paths in the
 * order of the text, and the last token of each path.
 */

export class TreeCache extends KvRows {
  /** @param {import("../../../board/static/types.d.ts").RunEvent} card of the model @param {number | "auto"} r */
  constructor(card, r) {
    super(card, r);
    this.width = card.kv_heads * card.head_dim;
    this.keys = Array.from({ length: card.layers }, () => new Float32Array()); // (C, width) each
    this.values = [...this.keys];
    this.refCounts = /** @type {number[]} */ ([]); // how many paths see each row
    /** The rows of each path, in the order of its text. @type {Map<number, number[]>} */
    this.paths = new Map([[0, []]]);
  }

  /**
   * Give rows to the new tokens of these paths, as many for each, and hold at least `reserved` rows.
   * @param {number[]} paths @param {number[][]} tokens @param {number} reserved
   * @param {number} stepsLeft how many decode steps are left
   */
  place(paths, tokens, reserved, stepsLeft) {
    const ids = tokens.flat();
    const growths = this.reserve(reserved, stepsLeft);
    growths.push(...this.prepare(paths, tokens[0].length));
    /** @type {ForwardBatch} */
    const batch = { ids, positions: [], rows: [], seen: [], logitsIndices: [], growths };
    for (const [index, path] of paths.entries()) {
      const own = this.rowsOf(path);
      for (const _ of tokens[index]) {
        const free = this.refCounts.indexOf(0);
        this.refCounts[free] = 1;
        batch.positions.push(own.length);
        batch.rows.push(free);
        batch.seen.push(own);
        own.push(free);
      }
      batch.logitsIndices.push(batch.rows.length - 1);
    }
    return batch;
  }

  /** @param {number} path */
  rowsOf(path) {
    return /** @type {number[]} */ (this.paths.get(path));
  }

  /** Copy all rows to longer tensors, or fewer: those in use. @param {number} count to copy @param {number} rows */
  reallocate(count, rows) {
    const all = [...this.refCounts.keys()];
    const kept = count < all.length ? all.filter((row) => this.refCounts[row] > 0) : all;
    const moved = new Map(kept.map((row, to) => [row, to]));
    for (const own of this.paths.values()) {
      for (const [at, row] of own.entries()) own[at] = moved.get(row) ?? row;
    }
    for (const tensors of [this.keys, this.values]) {
      for (const [layer, old] of tensors.entries()) tensors[layer] = this.copied(old, kept, rows);
    }
    this.refCounts = Array.from({ length: rows }, (_, to) => this.refCounts[kept[to]] ?? 0);
    return super.reallocate(count, rows);
  }

  /** @param {Float32Array} old @param {number[]} kept rows @param {number} rows of the copy */
  copied(old, kept, rows) {
    const { width } = this;
    const copy = new Float32Array(rows * width);
    for (const [to, from] of kept.entries()) {
      copy.set(old.subarray(from * width, (from + 1) * width), to * width);
    }
    return copy;
  }

  /** End `path`; each child sees its rows. @param {number} path @param {number[]} children */
  fork(path, children) {
    super.fork(path, children);
    const rows = this.rowsOf(path);
    this.paths.delete(path);
    for (const child of children) this.paths.set(child, [...rows]);
    for (const row of rows) this.refCounts[row] += children.length - 1;
  }

  /** End `path`. @param {number} path */
  release(path) {
    super.release(path);
    for (const row of this.rowsOf(path)) this.refCounts[row] -= 1;
    this.paths.delete(path);
  }
}
