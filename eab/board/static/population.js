// The live and finished paths of a run, and how the decisions of a step change them, as in
// eab/engine/paths.py and step_events.py: for runs of the story model (eab/share/live) and
// recomputed ones. First what they need, as in eab/engine/branching: random numbers that depend on
// (seed, stream key, step, index) alone (random_streams.py), a sum, and the path limit of the
// policy `fair` (fair.py; Fearnhead and Clifford, 2003).

/** @import { RunEvent } from "./types.d.ts" */

export const ROOT = 0n; // the stream key of the first path
const STREAM_KEY = 2n ** 32n; // the index of the stream key of a child
const PRUNING = 2n ** 64n - 1n; // a stream of its own

/**
 * A random number in [0, 1) with 53 bits: the `number`-th that draws tokens.
 * @param {bigint} seed @param {bigint} streamKey @param {number} step @param {number} number
 */
export function uniform(seed, streamKey, step, number) {
  return asUniform(blake2b(seed, streamKey, BigInt(step), BigInt(number)));
}

/** The draw for pruning to the path limit. @param {number} seed @param {number} step */
export function pruningUniform(seed, step) {
  return asUniform(blake2b(BigInt(seed), PRUNING, BigInt(step), 0n));
}

/** Of a child that is not the heir. @param {bigint} parent @param {number} step @param {number} token */
export function childStreamKey(parent, step, token) {
  return blake2b(parent, BigInt(step), BigInt(token), STREAM_KEY) % PRUNING || 1n;
}

/** @param {bigint} hash */
const asUniform = (hash) => Number(hash >> 11n) * 2 ** -53;

// BLAKE2b (RFC 7693) of four 64-bit words, with a digest of one.
const IV = (
  "6a09e667f3bcc908 bb67ae8584caa73b 3c6ef372fe94f82b a54ff53a5f1d36f1 " +
  "510e527fade682d1 9b05688c2b3e6c1f 1f83d9abfb41bd6b 5be0cd19137e2179"
)
  .split(" ")
  .map((word) => BigInt(`0x${word}`));
const SIGMA = (
  "0123456789abcdef ea489fd61c02b753 b8c052fdae367194 7931dcbe265a40f8 905724afe1bc683d " +
  "2c6a0b834d75fe19 c51fed4a0763928b db7ec13950f4862a 6fe9b308c2d714a5 a2847615fb9e3cd0"
)
  .split(" ")
  .map(digits);
const QUARTERS = "048c 159d 26ae 37bf 05af 16bc 278d 349e".split(" ").map(digits);
const PARAMETERS = 0x01010008n;

/** @param {string} row */
function digits(row) {
  return [...row].map((digit) => Number.parseInt(digit, 16));
}

/** @param {bigint[]} words */
function blake2b(...words) {
  const start = IV[0] ^ PARAMETERS;
  const v = BigUint64Array.from([start, ...IV.slice(1), ...IV]); // it wraps around, as it must
  v[12] ^= 32n; // bytes
  v[14] = ~v[14]; // the last block
  for (let round = 0; round < 12; round++) {
    const order = SIGMA[round % SIGMA.length];
    for (const [at, quarter] of QUARTERS.entries()) {
      mix(v, quarter, words[order[2 * at]] ?? 0n, words[order[2 * at + 1]] ?? 0n);
    }
  }
  return start ^ v[0] ^ v[8];
}

/** @param {BigUint64Array} v @param {number[]} at @param {bigint} x @param {bigint} y */
function mix(v, [a, b, c, d], x, y) {
  v[a] += v[b] + x;
  v[d] = turned(v[d] ^ v[a], 32n);
  v[c] += v[d];
  v[b] = turned(v[b] ^ v[c], 24n);
  v[a] += v[b] + y;
  v[d] = turned(v[d] ^ v[a], 16n);
  v[c] += v[d];
  v[b] = turned(v[b] ^ v[c], 63n);
}

/** @param {bigint} word @param {bigint} bits */
const turned = (word, bits) => (word >> bits) | (word << (64n - bits));

/**
 * The sum, rounded once, as Python's `math.fsum` (Shewchuk's algorithm).
 * @param {number[]} values
 */
export function fsum(values) {
  /** @type {number[]} */
  let parts = []; // that do not overlap, smallest first
  for (let value of values) {
    const next = [];
    for (const part of parts) {
      const [high, low] = Math.abs(value) < Math.abs(part) ? [part, value] : [value, part];
      value = high + low;
      const rest = low - (value - high);
      if (rest) next.push(rest);
    }
    parts = [...next, value];
  }
  return rounded(parts);
}

/** @param {number[]} parts that do not overlap, smallest first */
function rounded(parts) {
  let sum = parts.pop() ?? 0;
  while (parts.length) {
    const before = sum;
    const part = /** @type {number} */ (parts.pop());
    sum = before + part;
    const rest = part - (sum - before);
    if (!rest) continue;
    // halfway between two numbers, what is left decides
    const next = parts.at(-1) ?? 0;
    const doubled = sum + 2 * rest;
    return next * rest > 0 && doubled - sum === 2 * rest ? doubled : sum;
  }
  return sum;
}

/**
 * Keep at most `limit` of the weights; returns the new weights, with null for dropped ones. The
 * heaviest stay as they are; the others are kept by systematic resampling, and then weigh the same.
 * @param {number[]} weights @param {number} limit @param {number} uniform in [0, 1)
 * @returns {(number | null)[]}
 */
function fearnheadClifford(weights, limit, uniform) {
  if (weights.length <= limit) return weights;
  const order = weights.map((_, index) => index).sort((a, b) => weights[b] - weights[a]);
  const { kept, c } = thresholdOf(
    order.map((index) => weights[index]),
    limit,
  );
  /** @type {(number | null)[]} */
  const result = weights.map(() => null);
  for (const index of order.slice(0, kept)) result[index] = weights[index];
  const light = order.slice(kept).filter((index) => weights[index] > 0);
  light.sort((a, b) => a - b);
  const total = fsum(light.map((index) => weights[index]));
  let [seen, picked] = [0, 0];
  for (const index of light) {
    seen += weights[index];
    const share = index === light.at(-1) ? 1 : seen / total;
    // rounding must not add or lose a weight
    const reached = Math.min(limit - kept, Math.floor(share * (limit - kept) + uniform));
    if (reached <= picked) continue;
    result[index] = isClose(weights[index], c, 1e-12) ? weights[index] : c;
    picked = reached;
  }
  return result;
}

/**
 * How many of the heaviest weights stay as they are, and what the others then weigh.
 * @param {number[]} descending @param {number} limit
 */
function thresholdOf(descending, limit) {
  for (let kept = 0; kept < limit; kept++) {
    const c = fsum(descending.slice(kept)) / (limit - kept);
    if (descending[kept] <= c * (1 - 1e-12)) return { kept, c };
  }
  return { kept: limit, c: 0 };
}

/** @param {number} a @param {number} b @param {number} relative */
export function isClose(a, b, relative) {
  return a === b || Math.abs(a - b) <= relative * Math.max(Math.abs(a), Math.abs(b));
}

/** @typedef {{ path: number, weight: number, finished: boolean }} Leaf A live or finished path. */
/**
 * One continuation of a leaf, or a finished leaf itself, with its weight after the step; null:
 * dropped. token: [id, text, log probability, special]; null: the leaf itself. becomes: what the
 * leaf then has.
 * @template {Leaf} L
 * @typedef {{
 *   leaf: L, token: any[] | null, weight: number | null, heir: boolean, becomes: Partial<L>,
 * }} Member
 */
/** @typedef {Record<"dropped" | "pruned" | "forked" | "tokens" | "weights" | "finished", any[]>} Changes */

/** @template {Leaf} L */
export class Population {
  /**
   * @param {L} root
   * @param {Record<string, any>} config of the run
   * @param {{ fork(path: number, children: number[]): void, release(path: number): void }} cache
   */
  constructor(root, config, cache) {
    this.config = config;
    this.cache = cache;
    this.leaves = [root]; // in tree order
    this.born = 1; // paths so far
    this.step = 0; // the number of tokens decided on every live path
  }

  /** The paths that still decode, in tree order. */
  get live() {
    return this.leaves.filter(({ finished }) => !finished);
  }

  /** Keep at most max_paths of all members. @param {Member<L>[]} members */
  prune(members) {
    const { max_paths: limit, seed } = this.config;
    if (members.length <= limit) return;
    const weights = members.map(({ weight }) => weight ?? 0);
    const after = fearnheadClifford(weights, limit, pruningUniform(seed, this.step));
    for (const [at, member] of members.entries()) member.weight = after[at];
  }

  /**
   * End the step; returns what happened.
   * @param {Member<L>[][]} families of the leaves, in order
   * @param {(leaf: L) => string | undefined} ending why the text of a live path ends; empty if it does not
   */
  commit(families, ending) {
    /** @type {Changes} */
    const changes = { dropped: [], pruned: [], forked: [], tokens: [], weights: [], finished: [] };
    this.leaves = families.flatMap((family) => this.commitPath(family, changes));
    for (const leaf of this.live) {
      const reason = ending(leaf);
      if (!reason) continue;
      changes.finished.push({ path: leaf.path, reason });
      this.cache.release(leaf.path);
      leaf.finished = true;
    }
    return asEvents(changes, this.step++);
  }

  /** Drop, keep, extend or fork a path. @param {Member<L>[]} family @param {Changes} changes @returns {L[]} */
  commitPath(family, changes) {
    const [{ leaf }] = family;
    const { path } = leaf;
    const kept = family.filter(({ weight }) => weight !== null);
    if (!kept.length) {
      changes.pruned.push({ path });
      if (!leaf.finished) this.cache.release(path);
      return [];
    }
    const dropped = family.filter(({ weight }) => weight === null);
    if (dropped.length) changes.dropped.push([path, dropped.map(({ token }) => token?.[0])]);
    const weights = kept.map(({ weight }) => weight ?? 0);
    if (kept.length === 1 && weights[0] !== leaf.weight) changes.weights.push([path, weights[0]]);
    const ids = kept.map(() => (kept.length > 1 ? this.born++ : path));
    if (kept.length > 1) {
      const heir = ids[kept.findIndex((member) => member.heir)] ?? -1;
      changes.forked.push({ path, children: ids, weights, heir });
      this.cache.fork(path, ids);
    }
    return kept.map(({ token, becomes }, at) => {
      if (token) changes.tokens.push([ids[at], ...token]);
      return { ...leaf, ...becomes, path: ids[at], weight: weights[at] };
    });
  }
}

/** A finished leaf as a member. @template {Leaf} L @param {L} leaf @param {number | null} weight @returns {Member<L>} */
export function itself(leaf, weight = leaf.weight) {
  return { leaf, token: null, weight, heir: false, becomes: {} };
}

/** In the order that `eab.run.events` guarantees. @param {Changes} changes @param {number} step @returns {RunEvent[]} */
function asEvents({ dropped, pruned, forked, tokens, weights, finished }, step) {
  return [
    ...(dropped.length ? [{ event: "LimitActed", step, dropped }] : []),
    ...pruned.map((path) => ({ event: "Pruned", step, ...path })),
    ...forked.map((fork) => ({ event: "Forked", step, ...fork })),
    ...(tokens.length ? [{ event: "TokensAppended", step, tokens }] : []),
    ...(weights.length ? [{ event: "Reweighted", step, weights }] : []),
    ...finished.map((end) => ({ event: "PathFinished", step, ...end })),
  ];
}
