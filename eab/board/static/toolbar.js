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
    this.fold = wordButton("Fold", "shorten texts without a fork (f)", () => board.toggleFolded());
    this.focus = wordButton(
      "Only this path",
      "show only the selected path, its ancestors and what grew from it (o)",
      () => board.toggleFocus(),
    );
    this.tables = wordButton("Tables", "the pictures as tables (t)", () => board.toggleTable());
    this.present = wordButton("Presenter", "larger, for a projector (p)", () =>
      board.presentation.toggle(),
    );
    this.keys = wordButton("?", "show the keys (?)", () => board.toggleKeys());
    this.root.append(
      this.align,
      iconButton("zoomOut", "Zoom out", () => board.tree.camera.zoom(1 / 1.25)),
      iconButton("zoomIn", "Zoom in", () => board.tree.camera.zoom(1.25)),
      this.fit,
      this.fold,
      this.focus,
      wordButton("Find", "find words in the texts (/)", () => board.finder.open()),
      this.tables,
      iconButton("fullScreen", "Full screen", () => board.presentation.toggleFullScreen()),
      this.present,
      this.keys,
    );
  }

  render() {
    const { board } = this;
    const { camera } = board.tree;
    this.focus.disabled = board.focused === null && board.selected.path === null;
    setPressed(this.align, board.aligned);
    setPressed(this.fit, camera.showsWhole && !camera.movedByUser);
    setPressed(this.fold, board.folded);
    setPressed(this.focus, board.focused !== null);
    setPressed(this.tables, board.table.isOpen());
    setPressed(this.present, board.presentation.isOn);
    setPressed(this.keys, !board.keyList.hidden);
  }
}
