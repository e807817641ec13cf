// What stands around the pictures: the buttons for ways to look at the tree, the controls of the
// replay, the link to the run, and notes.

/** @import { Camera } from "./camera.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { RunInfo, Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { button, element, icon, iconButton, setPressed, wordButton } from "./elements.js";

const HELP = {
  "By step": "lay the tree out by step, like the entropy chart",
  Fit: "the whole tree, or follow what is new (w)",
  "Only this path": "show only the selected path, its ancestors and what grew from it (o)",
  Find: "find words in the texts (/)",
  "Deciding forks": "mark the forks that decide the answer, once the run has ended (d)",
  "Same answers": "draw texts with the same first sentence as one box, once the run has ended (a)",
  Tables: "the charts as tables (t)",
  Presenter: "larger, for a projector (p)",
  Help: "what the charts show, and the keys (?)",
  Continue: "let the texts that were cut at the length limit go on (c)",
  "In its tree": "show the run in the tree that it was grown from, or alone",
  "Show all": "draw all branches, each text by itself (b)",
};

/** The buttons above the tree. */
export class Toolbar {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send @param {Camera} camera */
  constructor(store, view, send, camera) {
    this.store = store;
    this.view = view;
    this.camera = camera;
    this.root = element("div", { class: "transport tools", role: "toolbar", "aria-label": "View" });
    const made = (/** @type {keyof typeof HELP} */ words, /** @type {() => void} */ action) =>
      wordButton(words, HELP[words], action);
    this.align = made("By step", () => send("toggleAligned"));
    this.fit = made("Fit", () => send("fit"));
    this.focus = made("Only this path", () => send("toggleFocus"));
    this.deciding = made("Deciding forks", () => send("toggleDeciding"));
    this.same = made("Same answers", () => send("toggleJoins"));
    this.tables = made("Tables", () => send("toggleDrawer", "tables"));
    this.present = made("Presenter", () => send("togglePresenter"));
    this.help = made("Help", () => send("toggleDrawer", "help"));
    this.goOn = made("Continue", () => send("goOn"));
    this.graft = made("In its tree", () => send("toggleGraft"));
    this.hidden = made("Show all", () => send("toggleBranches"));
    this.zooms = [
      iconButton("zoomOut", "Zoom out", () => send("zoom", 1 / 1.25)),
      iconButton("zoomIn", "Zoom in", () => send("zoom", 1.25)),
      this.fit,
    ];
    this.root.append(
      this.align,
      ...this.zooms,
      this.focus,
      made("Find", () => send("openFinder")),
      this.deciding,
      this.same,
      this.tables,
      iconButton("fullScreen", "Full screen", () => send("toggleFullScreen")),
      this.present,
      this.help,
      this.hidden,
      this.graft,
    );
  }

  render() {
    const { camera, store, view } = this;
    const { graft = null, grow, go_on: more } = store.offers;
    const one = grow && view.cutText;
    this.goOn.hidden = !one && !more;
    const words = one ? "Continue this text" : `Continue all: ${more} more tokens`;
    this.goOn.textContent = words;
    this.goOn.setAttribute("aria-label", `${words}: ${HELP.Continue}`);
    const isDecided = store.deciding.effects.size > 0;
    this.focus.disabled = view.focused === null && view.selection.path === null;
    setPressed(this.align, view.aligned);
    for (const node of this.zooms) node.hidden = view.outlined; // fingers enlarge the page
    this.graft.hidden = graft === null;
    setPressed(this.graft, graft === true);
    const { areAllDrawn, folds } = view.branches;
    this.hidden.disabled = areAllDrawn && folds;
    setPressed(this.hidden, areAllDrawn && !folds);
    setPressed(this.fit, camera.showsWhole && !camera.movedByUser);
    setPressed(this.focus, view.focused !== null);
    this.deciding.disabled = !isDecided;
    setPressed(this.deciding, view.showsDeciding);
    this.same.disabled = !view.branches.agreeing.size;
    setPressed(this.same, view.branches.boxes.size > 0);
    setPressed(this.tables, view.drawer === "tables");
    setPressed(this.present, view.presents);
    setPressed(this.help, view.drawer === "help");
  }
}

const SPEEDS = [0.5, 1, 2, 4];

/** The replay's controls: play, step, scrub, speed, follow. */
export class Transport {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.play = iconButton("play", "Play", () => send("togglePlay"));
    this.play.classList.add("play");
    this.shownPlaying = false;
    const range = { type: "range", min: 0, max: 0, value: 0 };
    this.slider = element("input", { ...range, "aria-label": "Step" });
    this.slider.oninput = () => send("goTo", Number(this.slider.value));
    this.stepLabel = element("output", { class: "step-label" });
    this.speed = element("select", { "aria-label": "Speed", title: "Speed" });
    for (const times of SPEEDS) this.speed.append(element("option", { value: times }, `${times}×`));
    this.speed.value = "1";
    this.speed.onchange = () => send("setSpeed", Number(this.speed.value));
    this.follow = wordButton("Follow", "stay at the newest step", () => send("toggleFollow"));
    this.root = element(
      "div",
      { class: "transport", role: "toolbar", "aria-label": "Replay" },
      iconButton("first", "First step", () => send("goTo", 0)),
      iconButton("back", "One step back", () => send("step", -1)),
      this.play,
      iconButton("forward", "One step forward", () => send("step", 1)),
      iconButton("last", "Last step, and follow", () => send("goToEnd")),
      this.slider,
      this.stepLabel,
      this.speed,
      this.follow,
    );
  }

  render() {
    const { cursor, follow, playing } = this.view;
    const { lastStep } = this.store;
    Object.assign(this.slider, { max: lastStep, value: cursor });
    this.slider.setAttribute("aria-valuetext", `step ${cursor} of ${lastStep}`);
    this.stepLabel.textContent = `${cursor} / ${lastStep}`;
    setPressed(this.follow, follow);
    if (this.shownPlaying !== playing) this.renderPlay(playing);
  }

  /** @param {boolean} playing */
  renderPlay(playing) {
    this.shownPlaying = playing;
    const name = playing ? "Pause" : "Play";
    this.play.replaceChildren(icon(playing ? "pause" : "play"));
    this.play.title = name;
    this.play.setAttribute("aria-label", name);
  }
}

const SHOWN_MS = 4000;

/** Copies a link that opens the run at the step of the cursor. */
export class CopyLink {
  /** @param {RunStore} store @param {ViewState} view */
  constructor(store, view) {
    this.store = store;
    this.view = view;
    const help = "Copy a link to this run at this step";
    this.button = button(icon("link"), help, `Copy link: ${help}`, () => this.copy());
    this.button.append("Copy link");
    this.words = element("span", { class: "copied", role: "status", hidden: "" });
    this.root = element("span", { class: "copy-link" }, this.button, this.words);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  close() {
    clearTimeout(this.timer);
  }

  render() {
    this.root.hidden = !this.store.offers.link;
  }

  async copy() {
    const { cursor } = this.view;
    const { link } = this.store.offers;
    if (!link) return;
    if (!link.query) return this.say(link.words);
    const url = `${location.href.split(/[?#]/)[0]}?${link.query}&cursor=${cursor}`;
    this.say((await copied(url)) ? `Copied. ${link.words}` : `Copy it by hand: ${url}`);
  }

  /** @param {string} words */
  say(words) {
    this.words.textContent = words;
    this.words.hidden = false;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.words.hidden = true;
    }, SHOWN_MS);
  }
}

/**
 * Copy the text, and return whether that worked. Browsers offer the clipboard only to secure pages;
 * other pages can copy a selection.
 * @param {string} text
 */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", { class: "visually-hidden" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

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
