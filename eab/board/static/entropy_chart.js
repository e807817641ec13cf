// Entropy by step: one line per path or a band for many paths, the threshold, and the cursor. If a
// server reported only the most likely tokens, a band per path shows the bounds of the entropy of
// all tokens.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import {
  axisTitle,
  fitUnits,
  frameOf,
  gridLine,
  LEFT,
  lastStepOf,
  Marks,
  pointIn,
  RIGHT,
  TOP,
  ticks,
} from "./chart_frame.js";
import { diamond, fading, set, shape } from "./elements.js";
import { EntropyLines, isSpread, pathsWithLines, spreadBands } from "./entropy_lines.js";
import { isOfFork } from "./paths.js";
import { ThresholdDrag, WhatIfBar } from "./what_if.js";

const GRIP = 7; // pixels on either side of the threshold line
const LABEL = 11.2; // px, from one label to the next: closer ones cannot both be read
const FORK_SIZE = 5;

/** @param {Event} event */
function isGrip(event) {
  return /** @type {Element} */ (event.target).classList.contains("grip");
}

export class EntropyChart {
  // The scales as last drawn.
  band = 1; // px, of a step
  innerHeight = 1; // px
  top = 1; // nats

  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    this.svg = shape("svg", { class: "chart entropy", role: "img" });
    this.scrubs = false; // whether the pointer moves the cursor
    this.axes = shape("g");
    this.spread = shape("g");
    this.lines = new EntropyLines(this);
    /** Its right edge is the cursor. */
    this.soFar = shape("svg", {}, this.spread, this.lines.bands, this.lines.traces);
    this.forks = shape("path", { class: "fork" });
    this.unknowns = shape("path", { class: "unknown" });
    this.limit = shape("g"); // the threshold
    this.cursor = shape("line", { class: "cursor" });
    const { axes, soFar, lines, limit, cursor } = this;
    this.svg.append(axes, soFar, lines.dots, lines.missed, limit, cursor);
    this.drawnWith = ""; // the inputs of the parts that do not move with the cursor
    this.limitDrawnWith = "";
    this.forkMarks = this.unknownMarks = new Marks([]);
    this.drag = new ThresholdDrag(this, store, view, send);
    this.bar = new WhatIfBar(this.drag, store, send);
    this.listen();
  }

  close() {
    this.drag.close();
  }

  // ---- pointer

  listen() {
    // Else a finger on the line scrolls the page, because Chromium ignores touch-action on a shape.
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
    return this.drag.active ? this.drag.highest : this.store.top * 1.06;
  }

  /** The middle of a step's band. @param {number} step */
  x = (step) => LEFT + (step + 0.5) * this.band;

  /** @param {number} entropy */
  y = (entropy) => TOP + this.innerHeight * (1 - entropy / this.top);

  // ---- drawing

  fade() {
    this.svg.append(fading(this.lines.traces));
  }

  render() {
    const { store, view } = this;
    const { width, height, bottom, innerHeight } = frameOf(view, this.svg);
    const highest = this.highest();
    const size = [view.branches.changes, width, height, lastStepOf(store), highest].join();
    if (this.drawnWith !== size) {
      this.drawnWith = size;
      this.drawAll();
    }
    const at = this.x(view.cursor);
    set(this.soFar, { width: at.toFixed(1), height: height.toFixed(1) });
    this.drawSpread();
    this.lines.render(pathsWithLines(store, view));
    this.drawMarks(this.forks, this.forkMarks);
    this.drawMarks(this.unknowns, this.unknownMarks);
    this.drawThreshold();
    set(this.cursor, { x1: at, x2: at, y1: TOP, y2: TOP + innerHeight });
    set(this.svg, { "aria-label": store.sentencesAt(view.cursor).entropy || "Entropy per step" });
    this.bar.place(this.y(store.run.threshold) * view.chartScale, bottom * view.chartScale);
  }

  /** Draw the parts that do not move with the cursor. */
  drawAll() {
    const { innerWidth, innerHeight } = frameOf(this.view, this.svg);
    this.band = innerWidth / (lastStepOf(this.store) + 1);
    this.innerHeight = innerHeight;
    this.top = this.highest();
    fitUnits(this.view, this.svg);
    this.axes.replaceChildren(...this.axesOf());
    this.spread.replaceChildren();
    this.lines.clear();
    this.forkMarks = this.marksOfForks();
    this.unknownMarks = this.marksOfUnknowns();
  }

  axesOf() {
    const { width, height, bottom, isLow, innerWidth } = frameOf(this.view, this.svg);
    const steps = ticks(lastStepOf(this.store), Math.max(2, innerWidth / 90));
    const title = { x: LEFT + innerWidth / 2, y: height - 4 };
    return [
      ...ticks(this.highest()).flatMap((value) =>
        gridLine(String(value), this.y(value), LEFT, width - RIGHT),
      ),
      ...steps.filter(Number.isInteger).map((step) => {
        const place = { x: this.x(step), y: bottom + 15 };
        return shape("text", { class: "tick-label middle", ...place }, String(step));
      }),
      ...(isLow ? [] : [axisTitle("step (token of the path)", title)]),
      shape("text", { class: "axis-title", x: 2, y: 10 }, "entropy (nats)"),
    ];
  }

  /** @param {SVGPathElement} shape of all of them @param {Marks} marks */
  drawMarks(shape, marks) {
    const d = marks.upTo(this.view.cursor);
    set(shape, { d });
    if (!d) shape.remove();
    else if (!shape.parentNode) this.limit.before(shape);
  }

  /** Draw the band of all paths, once there are many. */
  drawSpread() {
    const isDrawn = this.spread.childElementCount > 0;
    const isWanted = isSpread(this.store, this.view);
    if (isWanted && !isDrawn) this.spread.append(...spreadBands(this.view, this.x, this.y));
    this.spread.classList.toggle("hidden", !isWanted);
  }

  drawThreshold() {
    const { width, innerWidth } = frameOf(this.view, this.svg);
    const value = this.drag.active ? this.drag.threshold : this.store.run.threshold;
    const [at, right] = [this.y(value), width - RIGHT];
    const draggable = this.store.canMoveThreshold;
    const grip = { class: "grip", x: 0, y: at - GRIP, width: LEFT + innerWidth, height: 2 * GRIP };
    const text = `${value.toFixed(2)}${draggable ? " ⇕" : ""}`;
    const { policy } = this.store.run; // "": the run has not started, its threshold is not known
    const drawnWith = [this.drawnWith, value, draggable, policy].join();
    if (this.limitDrawnWith === drawnWith) return;
    this.limitDrawnWith = drawnWith;
    if (!policy) return this.limit.replaceChildren();
    const help = shape("title", {}, "Drag to see the tree at another threshold");
    this.limit.replaceChildren(
      shape("line", { class: "threshold", x1: LEFT, x2: right, y1: at, y2: at }),
      shape("text", { class: "threshold-label end", x: LEFT - 3, y: at + 4 }, text),
      ...(draggable ? [shape("rect", grip, help)] : []),
    );
    this.hideTicksBehind(at + 4);
  }

  /** Measuring the labels would make the browser lay out the page. @param {number} y of the threshold's label */
  hideTicksBehind(y) {
    for (const tick of this.axes.querySelectorAll(".tick-label.end")) {
      const isBehind = Math.abs(Number(tick.getAttribute("y")) - y) < LABEL;
      set(tick, { visibility: isBehind ? "hidden" : "visible" });
    }
  }

  /** A mark for each fork. */
  marksOfForks() {
    const isFirst = (/** @type {Path} */ { id, parent }) =>
      this.store.childrenOf(parent).find(isOfFork)?.id === id;
    const first = this.view.branches
      .inView()
      .filter((path) => path.tokens[0]?.entropy >= 0 && path.parent >= 0 && isFirst(path));
    return new Marks(first.map(({ born, tokens: [{ entropy }] }) => this.markAt(born, entropy)));
  }

  /** A mark wherever only a run of the model could tell what would happen. */
  marksOfUnknowns() {
    const { store, view } = this;
    const paths = store.unknowns.size ? view.branches.inView() : [];
    const marks = paths.flatMap(({ id, born, tokens }) =>
      tokens.flatMap(({ entropy }, index) =>
        store.unknownAt(id, index) ? [this.markAt(born + index, entropy)] : [],
      ),
    );
    return new Marks(marks);
  }

  /** @param {number} step @param {number} entropy */
  markAt(step, entropy) {
    return { step, d: diamond(this.x(step), this.y(entropy), FORK_SIZE) };
  }
}
