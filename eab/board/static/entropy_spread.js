// With many paths or steps, lines would hide one another. Then a band shows the range of the
// entropies, and only one text has a line: the selected one, or the heaviest.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { lastStepOf } from "./chart_frame.js";
import { shape } from "./elements.js";
import { weightAt } from "./path_state.js";
import { binned, pointList } from "./so_far.js";

const MOST_LINES = 8;
const MOST_STEPS = 1000; // with several lines; more steps get under half a pixel each

/** @typedef {(value: number) => number} Scale from a step or an entropy to pixels */

/**
 * Whether there are too many paths or steps for a line each.
 * @param {RunStore} store @param {ViewState} view
 */
export function isSpread(store, view) {
  const lines = view.shownTexts().length;
  const most = lastStepOf(store) < MOST_STEPS ? MOST_LINES : 1;
  return store.sides === null && lines > most;
}

/** The paths that have a line. @param {RunStore} store @param {ViewState} view @returns {Path[]} */
export function pathsWithLines(store, view) {
  if (!isSpread(store, view)) return view.startedPaths();
  const heaviest = view
    .shownTexts()
    .reduce((a, b) => (weightAt(b, view.cursor) > weightAt(a, view.cursor) ? b : a));
  const chosen = store.paths.get(view.highlighted ?? -1) ?? heaviest;
  const begun = new Set(view.startedPaths());
  return store.lineThrough(chosen).filter((path) => begun.has(path));
}

/**
 * The band of all paths and the band of their middle half, at all steps.
 * @param {ViewState} view @param {Scale} x @param {Scale} y
 */
export function spreadBands(view, x, y) {
  const steps = entropiesByStep(view);
  return [
    { low: 0, high: 1, name: "spread" },
    { low: 0.25, high: 0.75, name: "spread half" },
  ].map(({ low, high, name }) => {
    const edge = (/** @type {number} */ share) =>
      binned(steps.map((entropies, step) => ({ x: x(step), y: y(quantile(entropies, share)) })));
    const points = pointList([...edge(high), ...edge(low).reverse()]);
    return shape("polygon", { class: name, points });
  });
}

/**
 * The sorted entropies of all paths at each step; empty for a step without paths.
 * @param {ViewState} view
 */
function entropiesByStep(view) {
  /** @type {number[][]} */
  const steps = [];
  for (const { born, tokens } of view.branches.inView()) {
    for (const [index, { entropy }] of tokens.entries()) {
      steps[born + index] ??= [];
      steps[born + index].push(entropy);
    }
  }
  return Array.from(steps, (entropies) => (entropies ?? []).sort((a, b) => a - b));
}

/**
 * @param {number[]} ordered
 * @param {number} share 0 for the lowest, 1 for the highest
 */
function quantile(ordered, share) {
  const place = share * (ordered.length - 1);
  const below = ordered[Math.floor(place)] ?? 0;
  const above = ordered[Math.ceil(place)] ?? below;
  return below + (above - below) * (place % 1);
}
