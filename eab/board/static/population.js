// The live and finished paths of a run, and how the decisions of a step change them, as in
// eab/engine/paths.py and step_events.py: for runs of the story model (eab/share/live) and recomputed ones.

/** @import { RunEvent } from "./types.d.ts" */
import { fearnheadClifford } from "./path_limit.js";
import { pruningUniform } from "./random_streams.js";

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
