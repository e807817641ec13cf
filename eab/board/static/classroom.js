// The board in a class: where a lesson or lecturer leads it, and alone in the window, large for a
// projector.

/** @import { RunStore } from "./run_store.js" */
/** @import { Guide, Lead, Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */

/** Moves the board to where a lesson or lecturer points, once; then the user is free to move on. */
export class Guidance {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    /** The guide that was followed last. */
    this.id = "";
    /** The lecturer's lead that was followed last. */
    this.leadId = "";
  }

  /** @param {Guide | undefined} guide */
  follow(guide) {
    if (guide === undefined || guide.id === this.id) return;
    this.id = guide.id;
    this.view.deselect();
    this.view.drawer = guide.drawer;
    if (guide.cursor !== null) this.send("goTo", guide.cursor);
    if (guide.token !== null) {
      this.send("reveal", { path: guide.token[0], token: guide.token[1] });
    }
  }

  /** Go to the place that the lecturer's board shows. @param {Lead} lead */
  lead(lead) {
    const { run, paths, lastStep } = this.store;
    if (lead.id === this.leadId || lead.run !== run.key) return;
    if (lead.token !== null && !paths.has(lead.token[0])) return; // not received yet
    this.leadId = lead.id;
    this.send("goTo", lead.cursor ?? lastStep);
    if (lead.token === null) this.send("deselect");
    else this.send("select", ...lead.token);
  }
}

/** Shows the board alone in the window: large for a projector, or just full screen. */
export class Presentation {
  /**
   * @param {HTMLElement} root of the board
   * @param {ViewState} view @param {Send} send @param {AbortSignal} signal
   */
  constructor(root, view, send, signal) {
    this.root = root;
    this.view = view;
    this.send = send;
    this.measuredWith = ""; // whether the board is large, and the size of the window
    const left = () => !document.fullscreenElement && root.popover && this.leave();
    document.addEventListener("fullscreenchange", left, { signal });
  }

  /** Adapt to the window's size; a phone is not a projector, so it keeps its outline. */
  measure() {
    const { isPhone, presents } = this.view;
    this.root.classList.toggle("presenting", presents && !isPhone);
    const measuredWith = [presents && !isPhone, innerWidth, innerHeight].join();
    if (this.measuredWith === measuredWith) return; // the styles may have to be computed for it
    this.view.textSize = Number.parseFloat(getComputedStyle(this.root).fontSize);
    if (this.view.textSize) this.measuredWith = measuredWith; // else the board has no place yet
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
    this.root.popover = "manual";
    this.raise();
    const fullScreen = document.documentElement.requestFullscreen?.();
    fullScreen?.then(() => this.raise()).catch(() => {}); // else some browsers draw the page above it
  }

  /** Put the board above all else on the page, except the bar of a class. */
  raise() {
    const { root } = this;
    if (!root.popover) return; // left before the screen was full
    root.hidePopover?.();
    root.showPopover?.();
    this.tell();
    root.focus({ preventScroll: true }); // so the board gets the remote's keys
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
