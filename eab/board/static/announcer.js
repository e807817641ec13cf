// Tells screen readers what the tree has become, not more often than they can read.

/** @import { RunInfo } from "./types.d.ts" */
import { element } from "./elements.js";

const PAUSE_MS = 5000;

export class Announcer {
  constructor() {
    this.root = element("p", { class: "visually-hidden", "aria-live": "polite" });
    this.toldAt = 0;
  }

  /** @param {RunInfo} run */
  tell(run) {
    const now = Date.now();
    if (now - this.toldAt < PAUSE_MS && !run.ended) return;
    this.toldAt = now;
    this.root.textContent = run.sentences.tree;
  }
}
