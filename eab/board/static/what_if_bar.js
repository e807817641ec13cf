// What goes with the threshold line: a slider, which moves it by the keyboard, and once it was moved
// the buttons to run the model there or to go back.

/** @import { Board } from "./board.js" */
import { wordButton } from "./buttons.js";
import { element } from "./elements.js";

const HEIGHT = 34; // px, with its margin

export class WhatIfBar {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.root = element("div", { class: "what-if" });
    this.slider = element("input", {
      type: "range",
      class: "threshold-slider visually-hidden",
      min: 0,
      step: 0.01,
      "aria-label": "What if? Threshold (nats)",
    });
    this.slider.oninput = () => board.entropy.drag.moveTo(Number(this.slider.value));
    this.run = wordButton("Run", "Make this run with the model", () => this.runHere());
    this.reset = wordButton("Reset", "back to the recorded run", () =>
      board.onWhatIf?.({ threshold: null, r: null }),
    );
    this.root.append(this.slider, this.run, this.reset);
  }

  /**
   * @param {number} y pixels from the top of the chart to the threshold line
   */
  place(y) {
    const { board } = this;
    const { height } = board.sizes.of(board.entropy.svg);
    this.root.hidden = board.onWhatIf === null;
    this.slider.hidden = !board.canMoveThreshold;
    this.reset.hidden = board.whatIf === "";
    this.run.hidden = board.whatIf === "" || board.onRunAt === null;
    this.slider.max = board.entropy.highest().toFixed(2);
    if (!this.slider.matches(":focus")) this.slider.value = board.run.threshold.toFixed(2);
    const words = `Run at ${board.run.threshold.toFixed(2)}`;
    this.run.textContent = words;
    this.run.setAttribute("aria-label", `${words}: make this run with the model`);
    this.root.style.top = `${Math.max(0, Math.min(y + 4, height - HEIGHT)).toFixed(0)}px`;
  }

  runHere() {
    const { key, threshold } = this.board.run;
    if (key !== null) this.board.onRunAt?.(threshold);
  }
}
