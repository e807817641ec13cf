// What if the finished run had had other settings? The controls of the threshold line: a slider,
// which moves it by the keyboard, and, once it was moved, buttons to run the model there or to go
// back. Also the growth step r: what the cache would have copied and reserved at another r.

/** @import { RunStore } from "./run_store.js" */
/** @import { ThresholdDrag } from "./threshold_drag.js" */
/** @import { Send } from "./types.d.ts" */
import { wordButton } from "./buttons.js";
import { element } from "./elements.js";

const HEIGHT = 34; // px, with its margin

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

export class GrowthSelect {
  /** @param {RunStore} store @param {Send} send */
  constructor(store, send) {
    this.store = store;
    this.select = element("select", { "aria-label": "Growth step r" });
    this.select.onchange = () =>
      send("askWhatIf", { threshold: store.run.threshold, r: this.select.value });
    const title =
      "When the cache is full, it grows by the rows of r steps. Try another r on this run: " +
      "its texts stay the same.";
    this.root = element("label", { class: "growth", title }, "Growth step r ", this.select);
    this.offered = "";
  }

  render() {
    const { offers, run } = this.store;
    const growthSteps = offers.growth_steps ?? [];
    this.root.hidden = !offers.what_if || run.cache !== "tree" || !growthSteps.length;
    const offered = growthSteps.join();
    if (offered !== this.offered) {
      this.offered = offered;
      const options = growthSteps.map((r) => element("option", { value: r }, String(r)));
      this.select.replaceChildren(...options);
    }
    this.select.value = String(run.r);
  }
}
