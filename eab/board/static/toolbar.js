// The buttons above the tree, for ways to look at it.

/** @import { Camera } from "./camera.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { iconButton, setPressed, wordButton } from "./buttons.js";
import { element } from "./elements.js";

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
