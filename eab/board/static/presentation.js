// The board alone in the window: large for a projector, or just full screen.

/** @import { Board } from "./board.js" */

export class Presentation {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.isOn = false;
    board.root.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement) this.set(false);
    });
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
    this.board.tree.camera.reset();
    this.board.rearrange();
  }
}
