// The messages that the board shows next to its pictures.

/** @import { RunStore } from "./run_store.js" */
/** @import { RunInfo, Send } from "./types.d.ts" */
import { wordButton } from "./buttons.js";
import { element } from "./elements.js";

const SILENCE_MS = 8000;
const SILENCE_WORDS =
  `No news for ${SILENCE_MS / 1000} seconds: the step is slow, or the connection is lost. ` +
  "You can replay what has arrived.";
const PAUSE_MS = 5000; // between announcements

/** A note below the tree if the path limit dropped branches, with a link to an explanation. */
export class LimitNote {
  /** @param {RunStore} store @param {Send} send */
  constructor(store, send) {
    this.store = store;
    this.words = element("span");
    const help = "what the path limit does to the weights";
    const why = wordButton("Why?", help, () => send("explainLimit"));
    this.root = element("p", { class: "limit-note", hidden: "" }, this.words, " ", why);
  }

  render() {
    const { limit } = this.store.run;
    this.root.hidden = limit === "";
    this.words.textContent = limit;
  }
}

/** A notice when a live run has sent nothing for a while. */
export class SilenceNotice {
  constructor() {
    this.root = element("p", { class: "news", role: "status", hidden: "" });
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  /** A message has come. @param {boolean} expectsMore */
  onMessage(expectsMore) {
    this.close();
    this.root.hidden = true;
    if (!expectsMore) return;
    this.timer = setTimeout(() => {
      this.root.textContent = SILENCE_WORDS;
      this.root.hidden = false;
    }, SILENCE_MS);
  }

  close() {
    clearTimeout(this.timer);
  }
}

/** Tells screen readers how the tree has grown, no more often than they can read it. */
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
