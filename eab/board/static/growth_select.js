// The growth step r of a finished run: what the cache would have copied and reserved at another.

/** @import { Board } from "./board.js" */
import { element } from "./elements.js";

export class GrowthSelect {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.select = element("select", { "aria-label": "Growth step r" });
    this.select.onchange = () =>
      board.onWhatIf?.({ threshold: board.run.threshold, r: this.select.value });
    this.root = element("label", {
      class: "growth",
      title:
        "When the cache is full, it grows by the rows of r steps. Try another r on this run: " +
        "its texts stay the same.",
    });
    this.root.append("Growth step r ", this.select);
    this.offered = "";
  }

  render() {
    const { board } = this;
    const { growthSteps, onWhatIf, run } = board;
    this.root.hidden = onWhatIf === null || run.cache !== "tree" || !growthSteps.length;
    const offered = growthSteps.join();
    if (offered !== this.offered) {
      this.offered = offered;
      this.select.replaceChildren(
        ...growthSteps.map((r) => element("option", { value: r }, String(r))),
      );
    }
    this.select.value = String(run.r);
  }
}
