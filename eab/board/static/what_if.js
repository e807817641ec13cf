// What if the finished run had had other settings? The threshold line can be dragged, or moved by a
// slider; buttons run the model there or go back; and the cache can have another growth step r. The
// host resimulates the run and sends it.

/** @import { EntropyChart } from "./entropy_chart.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { frameOf, TOP } from "./chart_frame.js";
import { element, wordButton } from "./elements.js";

const R_STEPS = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const PAUSE_MS = 120; // between requests while the line is dragged

/** Moves the threshold line, and requests the run at its place. */
export class ThresholdDrag {
  /**
   * @param {EntropyChart} chart @param {RunStore} store @param {ViewState} view @param {Send} send
   */
  constructor(chart, store, view, send) {
    this.chart = chart;
    this.store = store;
    this.view = view;
    this.send = send;
    this.active = false;
    this.threshold = 0;
    /** The threshold last asked for. @type {number | null} */
    this.requested = null;
    this.highest = 0; // keeps the chart's scale fixed while the line is dragged
    this.top = 0; // px
    this.height = 1; // of the frame, in the units of the chart
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.pause = undefined;
  }

  /**
   * Remember the chart's place, which a longer sentence above may change: if the pointer returns to
   * where it was, so does the line.
   */
  begin() {
    this.threshold = this.store.run.threshold;
    this.highest = this.chart.highest();
    this.top = this.chart.svg.getBoundingClientRect().top;
    this.height = frameOf(this.view, this.chart.svg).innerHeight;
    this.requested = null;
    this.active = true;
  }

  /** @param {PointerEvent} event */
  move(event) {
    const { chartScale } = this.view;
    const share = 1 - ((event.clientY - this.top) / chartScale - TOP) / this.height;
    this.threshold = Math.round(100 * this.highest * Math.min(1, Math.max(0, share))) / 100;
    this.pause ??= setTimeout(() => this.request(), PAUSE_MS);
    this.chart.render();
  }

  /**
   * Move the line by the keyboard.
   * @param {number} threshold nats
   */
  moveTo(threshold) {
    if (!this.active) this.begin();
    this.threshold = threshold;
    this.pause ??= setTimeout(() => {
      this.request();
      this.active = false;
    }, PAUSE_MS);
    this.chart.render();
  }

  request() {
    this.close();
    if (!this.active || this.requested === this.threshold) return;
    this.requested = this.threshold;
    this.send("tryThreshold", this.threshold);
  }

  /** @returns {boolean} whether the line did not move, so it was a click */
  end() {
    const clicked = this.requested === null && this.threshold === this.store.run.threshold;
    if (!clicked) this.request();
    this.active = false;
    return clicked;
  }

  close() {
    clearTimeout(this.pause);
    this.pause = undefined;
  }
}

const HEIGHT = 34; // px, with its margin

/**
 * The controls of the threshold line: a slider, which moves it by the keyboard, and, once it was
 * moved, buttons to run the model there or to go back.
 */
export class WhatIfBar {
  /** @param {ThresholdDrag} drag @param {RunStore} store @param {Send} send */
  constructor(drag, store, send) {
    this.drag = drag;
    this.store = store;
    this.slider = element("input", {
      type: "range",
      class: "threshold-slider visually-hidden",
      min: 0,
      step: 0.01,
      "aria-label": "What if? Threshold (nats)",
    });
    this.slider.oninput = () => drag.moveTo(Number(this.slider.value));
    this.run = wordButton("Run", "Run the model with these settings", () => send("runHere"));
    this.reset = wordButton("Reset", "back to the recorded run", () =>
      send("askWhatIf", { threshold: null, r: null }),
    );
    this.root = element("div", { class: "what-if" }, this.slider, this.run, this.reset);
  }

  /**
   * @param {number} y pixels from the top of the chart to the threshold line
   * @param {number} bottom pixels from the top to its horizontal axis
   */
  place(y, bottom) {
    const { canMoveThreshold, offers, run, whatIf } = this.store;
    this.root.hidden = !offers.what_if;
    this.slider.hidden = !canMoveThreshold;
    this.reset.hidden = whatIf === "";
    this.run.hidden = whatIf === "" || !offers.run_at;
    this.slider.max = this.drag.chart.highest().toFixed(2);
    if (!this.slider.matches(":focus")) this.slider.value = run.threshold.toFixed(2);
    const words = `Run at ${run.threshold.toFixed(2)}`;
    this.run.textContent = words;
    this.run.setAttribute("aria-label", `${words}: make this run with the model`);
    const isLow = y + 4 + HEIGHT > bottom;
    this.root.style.top = `${Math.max(0, isLow ? y - HEIGHT : y + 4).toFixed(0)}px`;
  }
}

/** The growth step r: what the cache would have copied and reserved at another r. */
export class GrowthSelect {
  /** @param {RunStore} store @param {Send} send */
  constructor(store, send) {
    this.store = store;
    this.select = element("select", { "aria-label": "Growth step r" });
    this.select.onchange = () => {
      const r = this.select.value === "auto" ? "auto" : Number(this.select.value);
      send("askWhatIf", { threshold: store.run.threshold, r });
    };
    const title =
      "When the cache is full, it grows by the rows of r steps. Try another r on this run: " +
      "its texts stay the same.";
    this.root = element("label", { class: "growth", title }, "Growth step r ", this.select);
    this.offered = "";
    /** That of the recorded run. @type {number | "auto"} */
    this.own = "auto";
  }

  render() {
    const { offers, run, whatIf } = this.store;
    this.root.hidden = !offers.what_if || run.cache !== "tree";
    if (!whatIf) this.own = run.r;
    const steps = [...new Set([...R_STEPS, this.own, run.r])].filter((r) => r !== "auto");
    const offered = ["auto", ...steps.sort((a, b) => a - b)];
    if (offered.join() !== this.offered) {
      this.offered = offered.join();
      const options = offered.map((r) => element("option", { value: r }, String(r)));
      this.select.replaceChildren(...options);
    }
    this.select.value = String(run.r);
  }
}
