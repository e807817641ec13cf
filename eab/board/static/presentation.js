// The board alone in the window: large for a projector, or just full screen.

/** @import { Board } from "./board.js" */

const CHART_TEXT = 11.5; // px, as `.tick-label` in charts.css

export class Presentation {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.isOn = false;
    /** px; of the board's own text, from presenting.css. */
    this.textSize = 0;
    board.root.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement) this.set(false);
    });
  }

  /** How much larger the charts are drawn, so that their numbers are as large as the texts. */
  get chartScale() {
    return this.isOn ? this.textSize / CHART_TEXT : 1;
  }

  /** The window may have another size. */
  measure() {
    this.textSize = Number.parseFloat(getComputedStyle(this.board.root).fontSize);
  }

  toggle() {
    this.set(!this.isOn);
    if (this.isOn) this.fill();
    else this.leave();
  }

  toggleFullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.board.root.requestFullscreen?.().catch(() => {});
  }

  /** Full screen where the browser allows it, otherwise all of the window. */
  async fill() {
    const { root } = this.board;
    try {
      await root.requestFullscreen();
    } catch {
      root.popover = "manual";
      root.showPopover?.();
    }
    root.focus({ preventScroll: true }); // the remote's keys come to the board
  }

  leave() {
    this.board.root.popover = null; // also hides it
    if (document.fullscreenElement) document.exitFullscreen();
  }

  /** @param {boolean} isOn */
  set(isOn) {
    if (this.isOn === isOn) return;
    this.isOn = isOn;
    this.board.root.classList.toggle("presenting", isOn);
    this.measure();
    this.board.tree.camera.reset();
    this.board.rearrange();
  }
}
