// Entropy against step: one line per path or a band of many, the threshold, and the cursor. Where a
// server named only the most likely tokens, a band for each path shows what is certain of the entropy
// of all tokens.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Send, Token } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import {
  axisTitle,
  fitUnits,
  frameOf,
  gridLine,
  LEFT,
  lastStepOf,
  pointIn,
  RIGHT,
  TOP,
  ticks,
} from "./chart_frame.js";
import { diamond, set, shape } from "./elements.js";
import { pathsWithLines, spreadBands } from "./entropy_spread.js";
import { missedFork } from "./fork_reasons.js";
import { statusAt, tokenCountAt, weightAt } from "./path_state.js";
import { ThresholdDrag } from "./threshold_drag.js";
import { WhatIfBar } from "./what_if.js";

const GRIP = 7; // pixels on either side of the threshold line
const FORK_SIZE = 5;
const CIRCLE = "a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0Z";

/** @typedef {(value: number) => number} Scale from a step or an entropy to pixels */

/** @param {Event} event */
function isGrip(event) {
  return /** @type {Element} */ (event.target).classList.contains("grip");
}

/** @param {number[][]} points */
function pointList(points) {
  return points.map((point) => point.map((value) => value.toFixed(1)).join()).join(" ");
}

export class EntropyChart {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    this.svg = shape("svg", { class: "chart entropy", role: "img" });
    this.scrubs = false; // whether the pointer moves the cursor
    this.drag = new ThresholdDrag(this, store, view, send);
    this.bar = new WhatIfBar(this.drag, store, send);
    this.listen();
  }

  close() {
    this.drag.close();
  }

  // ---- pointer

  listen() {
    // Otherwise a finger on the line scrolls the page: Chromium ignores touch-action on a shape.
    const keepPage = (/** @type {TouchEvent} */ event) => {
      if (event.cancelable && event.touches.length === 1 && isGrip(event)) event.preventDefault();
    };
    this.svg.addEventListener("touchstart", keepPage, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => event.button || this.press(event));
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("pointercancel", (event) => this.release(event));
  }

  /** @param {PointerEvent} event */
  press(event) {
    this.svg.setPointerCapture(event.pointerId);
    this.scrubs = !isGrip(event);
    if (this.scrubs) this.scrub(event);
    else this.drag.begin();
  }

  /** @param {PointerEvent} event */
  move(event) {
    if (!event.buttons) this.release(event);
    else if (this.drag.active) this.drag.move(event);
    else if (this.scrubs) this.scrub(event);
  }

  /** @param {PointerEvent} event */
  release(event) {
    const clicked = this.drag.active && this.drag.end();
    if (clicked && event.type === "pointerup") this.scrub(event);
    this.scrubs = false;
  }

  /** @param {PointerEvent} event */
  scrub(event) {
    const { innerWidth } = frameOf(this.view, this.svg);
    const share = (pointIn(this.view, this.svg, event).x - LEFT) / innerWidth;
    this.send("goTo", Math.round(share * (lastStepOf(this.store) + 1) - 0.5));
  }

  // ---- scales

  highest() {
    if (this.drag.active) return this.drag.highest;
    const { run, highestEntropy } = this.store;
    return Math.max(run.threshold * 1.4, highestEntropy, 0.1) * 1.06;
  }

  // ---- drawing

  render() {
    const { innerWidth, innerHeight } = frameOf(this.view, this.svg);
    const band = innerWidth / (lastStepOf(this.store) + 1);
    const highest = this.highest();
    const x = (/** @type {number} */ step) => LEFT + (step + 0.5) * band;
    const y = (/** @type {number} */ entropy) => TOP + innerHeight * (1 - entropy / highest);
    const at = { x1: x(this.view.cursor), x2: x(this.view.cursor), y1: TOP, y2: TOP + innerHeight };
    const lines = pathsWithLines(this.store, this.view);
    fitUnits(this.view, this.svg);
    this.svg.replaceChildren(
      ...this.axes(x, y),
      ...spreadBands(this.store, this.view, x, y),
      ...this.bands(lines, x, y),
      ...this.traces(lines, x, y),
      ...this.missed(lines, x, y),
      ...this.forks(x, y),
      ...this.unknowns(x, y),
      ...this.threshold(y),
      shape("line", { class: "cursor", ...at }),
    );
    set(this.svg, {
      "aria-label": this.store.sentencesAt(this.view.cursor).entropy || "Entropy per step",
    });
    const { height } = this.view.sizes.of(this.svg);
    this.bar.place(y(this.store.run.threshold) * this.view.chartScale, height);
  }

  /** @param {Scale} x @param {Scale} y */
  axes(x, y) {
    const { width, height, bottom, isLow, innerWidth } = frameOf(this.view, this.svg);
    const steps = ticks(lastStepOf(this.store), Math.max(2, innerWidth / 90)).filter(
      Number.isInteger,
    );
    const title = { x: LEFT + innerWidth / 2, y: height - 4 };
    return [
      ...ticks(this.highest()).flatMap((value) =>
        gridLine(String(value), y(value), LEFT, width - RIGHT),
      ),
      ...steps.map((step) =>
        shape("text", { class: "tick-label middle", x: x(step), y: bottom + 15 }, String(step)),
      ),
      ...(isLow ? [] : [axisTitle("step (token of the path)", title)]),
      shape("text", { class: "axis-title", x: 2, y: 10 }, "entropy (nats)"),
    ];
  }

  /** @param {Scale} y */
  threshold(y) {
    const { width, innerWidth } = frameOf(this.view, this.svg);
    const value = this.drag.active ? this.drag.threshold : this.store.run.threshold;
    const [at, right] = [y(value), width - RIGHT];
    const draggable = this.store.canMoveThreshold;
    const grip = { x: LEFT, y: at - GRIP, width: innerWidth, height: 2 * GRIP };
    const text = `${value.toFixed(2)}${draggable ? " ⇕" : ""}`;
    return [
      shape("line", { class: "threshold", x1: LEFT, x2: right, y1: at, y2: at }),
      ...(draggable ? [this.grip(grip)] : []),
      shape("text", { class: "threshold-label end", x: LEFT - 3, y: at + 4 }, text),
    ];
  }

  /** @param {{ x: number, y: number, width: number, height: number }} place */
  grip(place) {
    const help = shape("title", {}, "Drag to see the tree at another threshold");
    return shape("rect", { class: "grip", ...place }, help);
  }

  /**
   * @param {Path[]} lines paths that have one
   * @param {Scale} x @param {Scale} y
   */
  bands(lines, x, y) {
    return lines.flatMap((path) => {
      const known = this.points(path).filter(([, token]) => token.whole);
      if (!known.length) return [];
      const edge = (/** @type {"low" | "high"} */ side) =>
        known.map(([step, { whole }]) => [x(step), y(whole?.[side] ?? 0)]);
      const highlight = this.view.classOf(path.id);
      const points = [...edge("low"), ...edge("high").reverse()];
      return [shape("polygon", { class: `band${highlight}`, points: pointList(points) })];
    });
  }

  /**
   * @param {Path[]} lines paths that have one
   * @param {Scale} x @param {Scale} y
   */
  traces(lines, x, y) {
    return lines.flatMap((path) => {
      const points = this.points(path).map(([step, { entropy }]) => [x(step), y(entropy)]);
      const highlight = this.view.classOf(path.id);
      const opacity = 0.3 + 0.7 * Math.sqrt(weightAt(path, this.view.cursor));
      const trace = shape("polyline", {
        class: `trace ${statusAt(path, this.view.cursor)}${highlight}`,
        points: pointList(points),
        "stroke-opacity": opacity.toFixed(2),
      });
      if (points.length !== 1) return [trace];
      const [cx, cy] = points[0]; // a line of one point cannot be seen
      return [trace, shape("circle", { class: `trace-dot${highlight}`, cx, cy, r: 2 })];
    });
  }

  /**
   * Steps and tokens of a path, from the last token of its parent on.
   * @param {Path} path @returns {[step: number, token: Token][]}
   */
  points(path) {
    const before = this.store.paths.get(path.parent)?.tokens.at(-1);
    const tokens = path.tokens.slice(0, tokenCountAt(path, this.view.cursor));
    /** @type {[number, Token][]} */
    const points = tokens.map((token, index) => [path.born + index, token]);
    return before ? [[path.born - 1, before], ...points] : points;
  }

  /** A mark where paths forked. @param {Scale} x @param {Scale} y */
  forks(x, y) {
    const isFirst = (/** @type {Path} */ path) =>
      this.store.paths.get(path.parent)?.firstChild === path.id;
    return this.view
      .begunPaths()
      .filter(isFirst)
      .map(({ born, tokens: [token] }) => {
        const d = diamond(x(born), y(token.entropy), FORK_SIZE);
        return shape("path", { class: "fork", d });
      });
  }

  /**
   * A circle where a path was unsure and did not fork; the tree says why. One shape for all, as a
   * long run has thousands.
   * @param {Path[]} lines paths that have one
   * @param {Scale} x @param {Scale} y
   */
  missed(lines, x, y) {
    let d = "";
    for (const path of lines) {
      for (const [index, token] of path.tokens
        .slice(0, tokenCountAt(path, this.view.cursor))
        .entries()) {
        if (!missedFork(this.store, path, index) || this.store.unknownAt(path.id, index)) continue;
        d += `M${(x(path.born + index) - 2.5).toFixed(1)} ${y(token.entropy).toFixed(1)}${CIRCLE}`;
      }
    }
    return d ? [shape("path", { class: "missed", d })] : [];
  }

  /** A mark where only a run could tell what would happen. @param {Scale} x @param {Scale} y */
  unknowns(x, y) {
    return this.view.begunPaths().flatMap((path) =>
      path.tokens.slice(0, tokenCountAt(path, this.view.cursor)).flatMap((token, index) => {
        if (!this.store.unknownAt(path.id, index)) return [];
        const d = diamond(x(path.born + index), y(token.entropy), FORK_SIZE);
        return [shape("path", { class: "unknown", d })];
      }),
    );
  }
}
