// The events of a run as decisions, as in eab/engine/what_if/__init__.py: what each live path saw at
// a step, and what it became.

/** @import { RunEvent } from "./types.d.ts" */
import { Run } from "./run.js";

/**
 * tokens: what the path went on with, [path, token, text, log probability, special] each: one per
 * child, one if it did not fork, none if the path limit dropped it. heir: the index of the child
 * that would have followed without a fork; null if the trace does not say. dropped: the tokens of
 * children that the path limit dropped at birth.
 * @typedef {object} Decision
 * @property {any[]} predicted [path, entropy, candidates, bounds]
 * @property {number} weight
 * @property {any[][]} tokens
 * @property {number[]} paths
 * @property {number[]} weights
 * @property {number | null} heir
 * @property {number[]} dropped
 */

export class Trace {
  /** @param {RunEvent[]} events */
  constructor(events) {
    this.run = new Run();
    /** @type {Map<string, Decision>} */
    this.decisions = new Map();
    /** The weights of paths after a step; null if dropped. @type {Map<string, number | null>} */
    this.changes = new Map();
    /** Why paths finished, by step and path. @type {Map<string, string>} */
    this.finished = new Map();
    for (const event of events) {
      this.noteBefore(event);
      this.run.apply(event);
      this.noteAfter(event);
    }
  }

  /** The decision for a live path; null if the run had ended. @param {number} step @param {number} path */
  decision(step, path) {
    const key = `${step} ${path}`;
    const decision = this.decisions.get(key);
    return decision && (decision.tokens.length || this.changes.has(key)) ? decision : null;
  }

  /** @param {number} step @param {number} path @returns {Decision} */
  at(step, path) {
    const decision = this.decisions.get(`${step} ${path}`);
    if (!decision) throw new Error(`path ${path} continues at step ${step} without a prediction`);
    return decision;
  }

  /** @param {RunEvent} event */
  noteBefore(event) {
    const { step } = event;
    if (event.event === "Predicted") {
      for (const predicted of event.predictions) {
        const weight = this.run.paths[predicted[0]].weights.at(-1)?.[1] ?? 0;
        const nothing = { tokens: [], paths: [], weights: [], heir: null, dropped: [] };
        this.decisions.set(`${step} ${predicted[0]}`, { predicted, weight, ...nothing });
      }
    } else if (event.event === "LimitActed") {
      for (const [path, dropped] of event.dropped) this.at(step, path).dropped = dropped;
    } else if (event.event === "Forked") {
      const { children: paths, weights } = event;
      const heir = paths.indexOf(event.heir);
      Object.assign(this.at(step, event.path), { paths, weights, heir: heir < 0 ? null : heir });
    }
  }

  /** @param {RunEvent} event */
  noteAfter(event) {
    const { step } = event;
    if (event.event === "TokensAppended") {
      for (const token of event.tokens) this.append(step, token);
    } else if (event.event === "Reweighted") {
      for (const [path, weight] of event.weights) this.reweight(step, path, weight);
    } else if (event.event === "Pruned") {
      this.changes.set(`${step} ${event.path}`, null);
    } else if (event.event === "PathFinished") {
      this.finished.set(`${step} ${event.path}`, event.reason);
    }
  }

  /** @param {number} step @param {any[]} token */
  append(step, token) {
    const own = this.decisions.get(`${step} ${token[0]}`);
    if (!own || own.paths.length) {
      this.at(step, this.run.paths[token[0]].parent).tokens.push(token);
      return;
    }
    const heir = own.dropped.length ? null : 0;
    Object.assign(own, { tokens: [token], paths: [token[0]], weights: [own.weight], heir });
  }

  /** @param {number} step @param {number} path @param {number} weight */
  reweight(step, path, weight) {
    this.changes.set(`${step} ${path}`, weight);
    const decision = this.decisions.get(`${step} ${path}`);
    if (decision?.paths.length === 1 && decision.paths[0] === path) decision.weights = [weight];
  }
}
