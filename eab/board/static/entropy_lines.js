// The lines of the entropy chart, or with many paths or steps, where lines would hide one another,
// a band for all and one line. They are drawn once for the whole run; the chart hides the part
// after the cursor.

/** @import { EntropyChart } from "./entropy_chart.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Token } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { binned, lastStepOf, Marks, pointList } from "./chart_frame.js";
import { set, shape } from "./elements.js";
import { missedFork } from "./fork_reasons.js";
import { statusAt, tokenCountAt, weightAt } from "./paths.js";

const CIRCLE = "a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0Z";

/**
 * @typedef {{ trace: SVGPolylineElement, band: SVGPolygonElement | null, missed: Marks,
 *   start: { x: number, y: number } | null }} Line
 */

/**
 * A path with a line also has a band of bounds if a server reported only some tokens, and circles
 * where the model was unsure and the path did not fork.
 */
export class EntropyLines {
  /** @param {EntropyChart} chart */
  constructor(chart) {
    this.chart = chart;
    this.store = chart.store;
    this.view = chart.view;
    this.bands = shape("g");
    this.traces = shape("g");
    this.dots = shape("g");
    this.missed = shape("path", { class: "missed" });
    /** @type {Map<number, Line>} */
    this.lines = new Map();
  }

  /** Remove all lines, because the scales or paths have changed. */
  clear() {
    this.lines.clear();
  }

  /** @param {Path[]} paths that have a line */
  render(paths) {
    const { cursor } = this.view;
    const lines = paths.map((path) => this.lineOf(path));
    const traces = lines.map(({ trace }) => trace);
    const bands = lines.flatMap(({ band }) => band ?? []);
    place(this.traces, traces);
    place(this.bands, bands);
    /** @type {Element[]} */
    const dots = [];
    for (const [index, path] of paths.entries()) {
      const { trace, band, start } = lines[index];
      const highlight = this.view.classOf(path.id);
      const opacity = 0.3 + 0.7 * Math.sqrt(weightAt(path, cursor));
      set(trace, {
        class: `trace ${statusAt(path, cursor)}${highlight}`,
        "stroke-opacity": opacity.toFixed(2),
      });
      if (band) set(band, { class: `band${highlight}` });
      if (start && tokenCountAt(path, cursor) === 1) {
        // A line with one point would be invisible.
        const at = { cx: start.x, cy: start.y, r: 2 };
        dots.push(shape("circle", { class: `trace-dot${highlight}`, ...at }));
      }
    }
    if (dots.length || this.dots.childElementCount) this.dots.replaceChildren(...dots);
    set(this.missed, { d: lines.map(({ missed }) => missed.upTo(cursor)).join("") });
  }

  /** @param {Path} path @returns {Line} */
  lineOf(path) {
    const known = this.lines.get(path.id);
    if (known) return known;
    const { x, y } = this.chart;
    const all = this.points(path).filter(([, { entropy }]) => entropy >= 0);
    const points = all.map(([step, { entropy }]) => ({ x: x(step), y: y(entropy) }));
    const isFirst = all[0]?.[0] === path.born;
    const line = {
      trace: shape("polyline", { points: pointList(binned(points)) }),
      band: this.bandOf(all),
      missed: this.missedOf(path),
      start: isFirst ? points[0] : null,
    };
    this.lines.set(path.id, line);
    return line;
  }

  /** @param {[step: number, token: Token][]} all */
  bandOf(all) {
    const known = all.filter(([, token]) => token.whole);
    if (!known.length) return null;
    const { x, y } = this.chart;
    const edge = (/** @type {"low" | "high"} */ side) =>
      known.map(([step, { whole }]) => ({ x: x(step), y: y(whole?.[side] ?? 0) }));
    return shape("polygon", { points: pointList([...edge("low"), ...edge("high").reverse()]) });
  }

  /** @param {Path} path */
  missedOf(path) {
    const { x, y } = this.chart;
    const marks = path.tokens.flatMap((token, index) => {
      const isMissed = missedFork(this.store, path, index);
      if (!isMissed || this.store.unknownAt(path.id, index)) return [];
      const step = path.born + index;
      const d = `M${(x(step) - 2.5).toFixed(1)} ${y(token.entropy).toFixed(1)}${CIRCLE}`;
      return [{ step, d }];
    });
    return new Marks(marks);
  }

  /**
   * The steps and tokens of a path, preceded by the last token of its parent.
   * @param {Path} path @returns {[step: number, token: Token][]}
   */
  points(path) {
    const before = this.store.paths.get(path.parent)?.tokens.at(-1);
    /** @type {[number, Token][]} */
    const points = path.tokens.map((token, index) => [path.born + index, token]);
    return before ? [[path.born - 1, before], ...points] : points;
  }
}

/** Put these into the group, unless they are there. @param {Element} group @param {Element[]} nodes */
function place(group, nodes) {
  const isSame = nodes.length === group.childElementCount;
  if (!isSame || nodes.some((node, index) => group.children[index] !== node))
    group.replaceChildren(...nodes);
}

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
      if (entropy >= 0) steps[born + index].push(entropy);
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
