// The lines of the entropy chart. A path with a line also has a band of bounds if a server reported
// only some tokens, and circles where the model was unsure and the path did not fork. All are drawn
// once for the whole run; the chart hides the part after the cursor.

/** @import { EntropyChart } from "./entropy_chart.js" */
/** @import { Path, Token } from "./types.d.ts" */
import { set, shape } from "./elements.js";
import { missedFork } from "./fork_reasons.js";
import { statusAt, tokenCountAt, weightAt } from "./path_state.js";
import { binned, Marks, pointList } from "./so_far.js";

const CIRCLE = "a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0Z";

/**
 * @typedef {{ trace: SVGPolylineElement, band: SVGPolygonElement | null, missed: Marks,
 *   start: { x: number, y: number } | null }} Line
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
    place(
      this.traces,
      lines.map(({ trace }) => trace),
    );
    place(
      this.bands,
      lines.flatMap(({ band }) => band ?? []),
    );
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
        dots.push(
          shape("circle", { class: `trace-dot${highlight}`, cx: start.x, cy: start.y, r: 2 }),
        );
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
    const all = this.points(path);
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
