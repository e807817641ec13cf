// Shows the board alone in the window: large for a projector, or just full screen.

/** @import { Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */

export class Presentation {
  /**
   * @param {HTMLElement} root of the board
   * @param {ViewState} view @param {Send} send
   */
  constructor(root, view, send) {
    this.root = root;
    this.view = view;
    this.send = send;
    root.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement) this.set(false);
    });
  }

  /** Adapt to the window's size; a phone is not a projector, so it keeps its outline. */
  measure() {
    const { isPhone, presents } = this.view;
    this.root.classList.toggle("presenting", presents && !isPhone);
    this.view.textSize = Number.parseFloat(getComputedStyle(this.root).fontSize);
  }

  toggle() {
    this.set(!this.view.presents);
    if (this.view.presents) this.fill();
    else this.leave();
  }

  toggleFullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.root.requestFullscreen?.().catch(() => {});
  }

  /** Use the full screen if the browser allows it, otherwise the whole window. */
  async fill() {
    const { root } = this;
    try {
      await root.requestFullscreen();
    } catch {
      root.popover = "manual";
      root.showPopover?.();
    }
    root.focus({ preventScroll: true }); // so the board gets the remote's keys
  }

  leave() {
    this.root.popover = null; // also hides it
    if (document.fullscreenElement) document.exitFullscreen();
  }

  /** @param {boolean} isOn */
  set(isOn) {
    if (this.view.presents === isOn) return;
    this.view.presents = isOn;
    this.send("refit");
  }
}
