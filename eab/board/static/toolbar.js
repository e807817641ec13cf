// The buttons over the tree: ways to look at it.

/** @import { Board } from "./board.js" */
import { iconButton, setPressed, wordButton } from "./buttons.js";
import { element } from "./elements.js";

export class Toolbar {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.root = element("div", { class: "transport tools", role: "toolbar", "aria-label": "View" });
    this.align = wordButton("By step", "lay the tree out by step, like the entropy chart", () =>
      board.toggleAligned(),
    );
    this.fit = wordButton("Fit", "the whole tree, or follow what is new (w)", () => board.fit());
    this.focus = wordButton(
      "Only this path",
      "show only the selected path, its ancestors and what grew from it (o)",
      () => board.toggleFocus(),
    );
    this.deciding = wordButton(
      "Deciding forks",
      "mark the forks that decide the answer, once the run has ended (d)",
      () => board.deciding.toggle(),
    );
    this.same = wordButton(
      "Same answers",
      "draw texts with the same first sentence as one box, once the run has ended (a)",
      () => board.branches.toggleJoins(),
    );
    this.tables = wordButton("Tables", "the pictures as tables (t)", () =>
      board.toggleDrawer("tables"),
    );
    this.present = wordButton("Presenter", "larger, for a projector (p)", () =>
      board.presentation.toggle(),
    );
    this.help = wordButton("Help", "what the pictures show, and the keys (?)", () =>
      board.toggleDrawer("help"),
    );
    this.graft = wordButton(
      "In its tree",
      "show the run in the tree that it was grown from, or alone",
      () => board.onGraft?.(),
    );
    this.hidden = wordButton("Show all", "draw all branches, each text by itself (b)", () =>
      board.branches.toggle(),
    );
    this.root.append(
      this.align,
      iconButton("zoomOut", "Zoom out", () => board.tree.camera.zoom(1 / 1.25)),
      iconButton("zoomIn", "Zoom in", () => board.tree.camera.zoom(1.25)),
      this.fit,
      this.focus,
      wordButton("Find", "find words in the texts (/)", () => board.finder.open()),
      this.deciding,
      this.same,
      this.tables,
      iconButton("fullScreen", "Full screen", () => board.presentation.toggleFullScreen()),
      this.present,
      this.help,
      this.hidden,
      this.graft,
    );
  }

  render() {
    const { board } = this;
    const { camera } = board.tree;
    this.focus.disabled = board.focused === null && board.selection.path === null;
    setPressed(this.align, board.aligned);
    this.graft.hidden = board.onGraft === null;
    setPressed(this.graft, board.grafted);
    const { areAllDrawn, folds } = board.branches;
    this.hidden.disabled = areAllDrawn && folds;
    setPressed(this.hidden, areAllDrawn && !folds);
    setPressed(this.fit, camera.showsWhole && !camera.movedByUser);
    setPressed(this.focus, board.focused !== null);
    this.deciding.disabled = !board.deciding.available;
    setPressed(this.deciding, board.deciding.shown);
    this.same.disabled = !board.branches.agreeing.size;
    setPressed(this.same, board.branches.boxes.size > 0);
    setPressed(this.tables, board.drawer.open === "tables");
    setPressed(this.present, board.presentation.isOn);
    setPressed(this.help, board.drawer.open === "help");
  }
}
