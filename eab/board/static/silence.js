// A notice when a live run has sent nothing for a while.

import { element } from "./elements.js";

const SILENCE_MS = 8000;
const WORDS =
  `No news for ${SILENCE_MS / 1000} seconds: the step is slow, or the connection is lost. ` +
  "You can replay what has arrived.";

export class SilenceNotice {
  constructor() {
    this.root = element("p", { class: "news", role: "status", hidden: "" });
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  /**
   * A message has come.
   * @param {boolean} expectsMore
   */
  onMessage(expectsMore) {
    this.close();
    this.root.hidden = true;
    if (!expectsMore) return;
    this.timer = setTimeout(() => {
      this.root.textContent = WORDS;
      this.root.hidden = false;
    }, SILENCE_MS);
  }

  close() {
    clearTimeout(this.timer);
  }
}
