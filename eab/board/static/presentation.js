// Larger text for a projector, and full screen.

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

  /** Full screen where the browser allows it; larger text in any case. */
  toggle() {
    this.set(!this.isOn);
    if (this.isOn !== Boolean(document.fullscreenElement)) this.toggleFullScreen();
  }

  toggleFullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.board.root.requestFullscreen?.().catch(() => {});
  }

  /** @param {boolean} isOn */
  set(isOn) {
    this.isOn = isOn;
    this.board.root.classList.toggle("presenting", isOn);
    this.board.tree.camera.release();
    this.board.render();
  }
}
