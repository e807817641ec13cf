// Shows the board alone in the window: large for a projector, or just full screen.

/** @import { Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */

export class Presentation {
  /**
   * @param {HTMLElement} root of the board
   * @param {ViewState} view @param {Send} send @param {AbortSignal} signal
   */
  constructor(root, view, send, signal) {
    this.root = root;
    this.view = view;
    this.send = send;
    const left = () => !document.fullscreenElement && root.popover && this.leave();
    document.addEventListener("fullscreenchange", left, { signal });
  }

  /** Adapt to the window's size; a phone is not a projector, so it keeps its outline. */
  measure() {
    const { isPhone, presents } = this.view;
    this.root.classList.toggle("presenting", presents && !isPhone);
    this.view.textSize = Number.parseFloat(getComputedStyle(this.root).fontSize);
  }

  toggle() {
    if (this.view.presents) return this.leave();
    this.set(true);
    this.fill();
  }

  toggleFullScreen() {
    if (this.root.popover) this.leave();
    else this.fill();
  }

  // Full screen, if the browser allows it, is that of the page, because nothing outside a full-screen
  // element can be clicked, and the bar of a class is above the board.
  fill() {
    const { root } = this;
    root.popover = "manual";
    root.showPopover?.();
    this.tell();
    root.focus({ preventScroll: true }); // so the board gets the remote's keys
    document.documentElement.requestFullscreen?.().catch(() => {});
  }

  leave() {
    this.set(false);
    this.root.popover = null; // also hides it
    this.tell();
    if (document.fullscreenElement) document.exitFullscreen();
  }

  /** Tell the page whether the board is alone in the window. */
  tell() {
    document.dispatchEvent(new CustomEvent("eab-alone", { detail: Boolean(this.root.popover) }));
  }

  /** @param {boolean} isOn */
  set(isOn) {
    if (this.view.presents === isOn) return;
    this.view.presents = isOn;
    this.send("refit");
  }
}
