// Mirrors eab/caches/tree.py, with row_table.py, growth.py and ledger.py: all paths of a run in one
// set of rows, each written once. A path is a list of rows; a fork copies the list, never K or V.
// When no row is free, longer tensors are allocated, with the rows of r decode steps more.

/**
 * @typedef {{
 *   ids: number[], positions: number[], rows: number[], seen: number[][], logitsIndices: number[],
 *   growths: object[],
 * }} ForwardBatch The new tokens, path after path: where K and V go, the rows of their paths in the
 * order of the text, and the last token of each path.
 */

const SLACK_DIVISOR = 4;
const LEAST_STEPS = 4;
const LEAST_GIVEN_BACK = 512; // rows

export class TreeCache {
  /** @param {number} layers @param {number} width of K, and of V @param {number | "auto"} r */
  constructor(layers, width, r) {
    this.width = width;
    this.r = r;
    this.rowBytes = 2 * layers * width * Float32Array.BYTES_PER_ELEMENT;
    this.keys = Array.from({ length: layers }, () => new Float32Array()); // (C, width) each
    this.values = [...this.keys];
    this.refCounts = /** @type {number[]} */ ([]); // how many paths see each row
    /** The rows of each path, in the order of its text. @type {Map<number, number[]>} */
    this.paths = new Map([[0, []]]);
    this.reserved = this.stepsLeft = 0;
    this.ledger = { bytes_copied: 0, allocations: 0, peak_bytes: 0 };
  }

  /** Rows that the tensors hold. */
  get rows() {
    return this.refCounts.length;
  }

  /** Rows that some path sees. */
  get used() {
    return this.refCounts.filter((count) => count > 0).length;
  }

  get all() {
    return [...this.refCounts.keys()];
  }

  get bytesHeld() {
    return [...this.keys, ...this.values].reduce((sum, tensor) => sum + tensor.byteLength, 0);
  }

  /**
   * Give rows to the new tokens of these paths, and hold at least `reserved` rows.
   * @param {number[]} paths @param {number[][]} tokens @param {number} reserved
   * @param {number} stepsLeft how many decode steps are left
   */
  prepare(paths, tokens, reserved, stepsLeft) {
    Object.assign(this, { reserved, stepsLeft });
    const ids = tokens.flat();
    const growths = reserved > this.rows ? [this.reallocate(this.all, reserved)] : [];
    growths.push(...this.compact(paths.length, ids.length));
    growths.push(...this.allocate(paths.length, ids.length));
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

  /** How many rows r decode steps take. @param {number} paths */
  ahead(paths) {
    const auto = Math.max(LEAST_STEPS, Math.floor(this.used / (SLACK_DIVISOR * paths)));
    return paths * Math.min(this.r === "auto" ? auto : this.r, this.stepsLeft);
  }

  /** Grow by r decode steps, if `count` rows are not free. @param {number} paths @param {number} count */
  allocate(paths, count) {
    const missing = this.used + count - this.rows;
    if (missing <= 0) return [];
    const ahead = this.ahead(paths);
    const more = Math.max(missing, Math.min(ahead, this.stepsLeft * paths - (count - missing)));
    const growth = this.reallocate(this.all, this.rows + more);
    return [{ ...growth, r: Math.floor(ahead / paths) }];
  }

  /** Give memory back if paths have ended. @param {number} paths @param {number} count */
  compact(paths, count) {
    const after = this.used + count;
    const needed = Math.max(this.reserved, after + this.ahead(paths));
    const least = 2 * Math.max(this.reserved, after);
    if (this.rows - Math.max(least, needed) <= LEAST_GIVEN_BACK) return [];
    const kept = this.all.filter((row) => this.refCounts[row] > 0);
    const moved = new Map(kept.map((row, to) => [row, to]));
    for (const rows of this.paths.values()) {
      for (const [at, row] of rows.entries()) rows[at] = moved.get(row) ?? row;
    }
    return [this.reallocate(kept, needed)];
  }

  /** Copy the `kept` rows to new tensors, one at a time. @param {number[]} kept @param {number} rows */
  reallocate(kept, rows) {
    const { width, ledger } = this;
    let live = this.bytesHeld;
    for (const tensors of [this.keys, this.values]) {
      for (const [layer, old] of tensors.entries()) {
        tensors[layer] = new Float32Array(rows * width);
        for (const [to, from] of kept.entries()) {
          tensors[layer].set(old.subarray(from * width, (from + 1) * width), to * width);
        }
        live += tensors[layer].byteLength; // for a moment, both exist
        ledger.peak_bytes = Math.max(ledger.peak_bytes, live);
        live -= old.byteLength;
        ledger.allocations += 1;
      }
    }
    this.refCounts = Array.from({ length: rows }, (_, to) => this.refCounts[kept[to]] ?? 0);
    const copied = kept.length * this.rowBytes;
    ledger.bytes_copied += copied;
    const { peak_bytes } = ledger;
    return { rows, rows_copied: kept.length, bytes_copied: copied, peak_bytes };
  }

  /** End `path`; each child sees its rows. @param {number} path @param {number[]} children */
  fork(path, children) {
    const rows = this.rowsOf(path);
    this.paths.delete(path);
    for (const child of children) this.paths.set(child, [...rows]);
    for (const row of rows) this.refCounts[row] += children.length - 1;
  }

  /** End `path`. @param {number} path */
  release(path) {
    for (const row of this.rowsOf(path)) this.refCounts[row] -= 1;
    this.paths.delete(path);
  }

  /** See `eab.events.values.KVUsage`. @param {number[]} live */
  usage(live) {
    const shared = this.refCounts.filter((count) => count > 1).length;
    const paths = live.map((path) => {
      const rows = this.rowsOf(path);
      const common = rows.filter((row) => this.refCounts[row] > 1).length;
      return [path, common, rows.length - common];
    });
    return {
      bytes_held: this.bytesHeld,
      rows_shared: shared,
      rows_private: this.used - shared,
      rows_spare: this.rows - this.used,
      rows_independent: paths.reduce((sum, [, common, own]) => sum + common + own, 0),
      paths,
      ...this.ledger,
    };
  }
}
