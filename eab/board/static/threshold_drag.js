// Dragging the threshold line: what if the run had had another threshold? The host resimulates the
// run and sends it.

/** @import { EntropyChart } from "./entropy_chart.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { frameOf, TOP } from "./chart_frame.js";

const PAUSE_MS = 120; // between requests while the line is dragged

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
