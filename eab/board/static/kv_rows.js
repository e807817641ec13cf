// The books of the tree cache (eab/engine/caches/tree.py and growth.py), without K and V: which rows its
// tensors hold, and which of them several live paths read.

/** @import { RunEvent } from "./types.d.ts" */

const SLACK_DIVISOR = 4; // with r = "auto", tensors grow by a quarter of the rows in use,
const LEAST_STEPS = 4; // at least by the rows of these steps
const LEAST_GIVEN_BACK = 512; // rows by which tensors shrink
const MIB = 2 ** 20;
/** @type {Record<string, number>} */
const ITEM_BYTES = { float64: 8, float32: 4, bfloat16: 2, float16: 2 };

/** Bytes of a row in each tensor, keys first. @param {RunEvent} card of the model @returns {number[]} */
export function tensorRows(card) {
  const { layers, kv_heads: heads, head_dim: size, layer_rows: rows } = card;
  const each = rows?.length ? rows : Array(layers).fill([heads, size, size]);
  const item = card.own_memory ? 0 : (ITEM_BYTES[card.dtype] ?? 0);
  return [1, 2].flatMap((at) => each.map((/** @type {number[]} */ row) => row[0] * row[at] * item));
}

/**
 * Rows that the tensors hold in any case: of the prompt, and if r covers all steps, of these paths.
 * @param {RunEvent} started @param {number} paths
 */
export function reservedRows({ prompt_tokens: prompt, config }, paths) {
  const { r, max_new_tokens: most } = config;
  return prompt.length + (r !== "auto" && r >= most ? paths * (most - 1) : 0);
}

/** The cache needs more than it may. */
export class MemoryLimitError extends Error {}

/**
 * Rows that belong together: those of the tokens of one path. readers: live paths that see them.
 * @typedef {{ rows: number, readers: number, before: Segment | null }} Segment
 */

export class KvRows {
  /**
   * @param {RunEvent} card of the model @param {number | "auto"} r growth step
   * @param {number} byteLimit
   */
  constructor(card, r, byteLimit = Number.POSITIVE_INFINITY) {
    this.rowBytes = card.row_bytes;
    this.tensors = tensorRows(card);
    this.r = r;
    this.byteLimit = byteLimit;
    this.held = 0; // rows that the tensors hold
    this.used = 0;
    this.reserved = 0;
    this.stepsLeft = 0;
    this.totals = { bytes_copied: 0, allocations: 0, peak_bytes: 0 };
    /** @type {Map<number, Segment>} */
    this.ends = new Map([[0, { rows: 0, readers: 1, before: null }]]); // of the live paths
  }

  /** The segments that a live path reads. @param {number} path */
  *segments(path) {
    for (let at = this.ends.get(path) ?? null; at; at = at.before) yield at;
  }

  /** Hold at least these rows. @param {number} rows @param {number} steps that may follow */
  reserve(rows, steps) {
    this.stepsLeft = steps;
    this.reserved = rows;
    return rows > this.held ? [this.grow(rows)] : [];
  }

  /**
   * Rows for new tokens; returns the growths.
   * @param {number[]} paths @param {number} each how many tokens each path gets
   */
  prepare(paths, each) {
    const growths = [];
    const needed = this.used + each * paths.length;
    const ahead = this.ahead(paths.length);
    const least = Math.max(this.reserved, needed);
    const wanted = Math.max(this.reserved, needed + ahead);
    if (this.held - Math.max(2 * least, wanted) > LEAST_GIVEN_BACK) {
      growths.push(this.reallocate(this.used, wanted));
    }
    const missing = needed - this.held;
    if (missing > 0) {
      const allowed = Math.floor(this.byteLimit / this.rowBytes) - this.held;
      const fillable = this.stepsLeft * paths.length - (each * paths.length - missing);
      const more = Math.max(Math.min(ahead, allowed, fillable), missing);
      growths.push({ ...this.grow(this.held + more), r: Math.floor(ahead / paths.length) });
    }
    for (const path of paths) /** @type {Segment} */ (this.ends.get(path)).rows += each;
    this.used = needed;
    return growths;
  }

  /** The rows of r steps. @param {number} paths */
  ahead(paths) {
    const auto = Math.max(LEAST_STEPS, Math.floor(this.used / (SLACK_DIVISOR * paths)));
    return paths * Math.min(this.r === "auto" ? auto : this.r, this.stepsLeft);
  }

  /** @param {number} rows */
  grow(rows) {
    const bytes = rows * this.rowBytes;
    if (bytes > this.byteLimit) {
      throw new MemoryLimitError(
        `the KV cache needs ${(bytes / MIB).toFixed(0)} MiB; kv_limit_mib allows ` +
          `${(this.byteLimit / MIB).toFixed(0)}. Use fewer paths or new tokens, a smaller r, or a ` +
          "higher kv_limit_mib",
      );
    }
    return this.reallocate(this.held, rows);
  }

  /** Copy rows to new tensors, one tensor at a time. @param {number} kept @param {number} rows */
  reallocate(kept, rows) {
    const { totals } = this;
    let live = this.held * this.rowBytes;
    for (const bytes of this.tensors) {
      live += rows * bytes;
      totals.peak_bytes = Math.max(totals.peak_bytes, live);
      live -= this.held * bytes;
    }
    totals.bytes_copied += kept * this.rowBytes;
    totals.allocations += this.tensors.length;
    this.held = rows;
    const copied = { rows_copied: kept, bytes_copied: kept * this.rowBytes };
    return { rows, ...copied, peak_bytes: totals.peak_bytes };
  }

  /** End a path; its children see its rows. @param {number} path @param {number[]} children */
  fork(path, children) {
    const before = /** @type {Segment} */ (this.ends.get(path));
    for (const segment of this.segments(path)) segment.readers += children.length - 1;
    this.ends.delete(path);
    for (const child of children) this.ends.set(child, { rows: 0, readers: 1, before });
  }

  /** End a path; rows that no other path sees become free. @param {number} path */
  release(path) {
    for (const segment of this.segments(path)) {
      segment.readers -= 1;
      if (!segment.readers) this.used -= segment.rows;
    }
    this.ends.delete(path);
  }

  /** The rows held, with the share of each of these live paths. @param {number[]} paths */
  usage(paths) {
    let [rowsShared, rowsIndependent] = [0, 0];
    const seen = new Set();
    const rows = paths.map((path) => {
      let [shared, own] = [0, 0];
      for (const segment of this.segments(path)) {
        if (segment.readers > 1) shared += segment.rows;
        else own += segment.rows;
        if (segment.readers > 1 && !seen.has(segment)) rowsShared += segment.rows;
        seen.add(segment);
      }
      rowsIndependent += shared + own;
      return [path, shared, own];
    });
    return {
      bytes_held: this.held * this.rowBytes,
      rows_shared: rowsShared,
      rows_private: this.used - rowsShared,
      rows_spare: this.held - this.used,
      rows_independent: rowsIndependent,
      paths: rows,
      ...this.totals,
    };
  }
}

/**
 * Rows that the cache of a single path holds after each number of new tokens.
 * @param {RunEvent} started @returns {number[]}
 */
export function heldAlone(started) {
  const { prompt_tokens: prompt, model, config } = started;
  const cache = new KvRows(model, config.r);
  return Array.from({ length: config.max_new_tokens }, (_, step) => {
    cache.reserve(reservedRows(started, 1), config.max_new_tokens - step);
    cache.prepare([0], step ? 1 : prompt.length);
    return cache.held;
  });
}
