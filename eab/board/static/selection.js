// The selected token: what the drawer tells about, and what is bright in the pictures.

/** @import { Board } from "./board.js" */
/** @import { Path, TokenPlace } from "./types.d.ts" */
import { tokenCountAt } from "./path_state.js";
import { lineOf, placeIn } from "./same_answer.js";

export class Selection {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    /** @type {number | null} */
    this.path = null;
    this.token = 0; // its index in the path
  }

  clear() {
    this.path = null;
    this.token = 0;
    this.board.drawer.leave("token");
  }

  /**
   * @param {number} path
   * @param {number} token
   */
  choose(path, token) {
    this.path = path;
    this.token = Math.max(0, token);
    this.board.drawer.show("token");
    this.renderAll();
  }

  /** Select the last token of a box. @param {Path} box */
  chooseLast(box) {
    const { path, index } = placeIn(box, tokenCountAt(box, this.board.cursor) - 1);
    this.choose(path.id, index);
  }

  drop() {
    this.clear();
    this.renderAll();
  }

  renderAll() {
    this.board.highlight.hover(null);
    this.board.render();
  }

  /**
   * The index of the selected token in the box of this path; -1 if it is elsewhere.
   * @param {Path} box
   */
  tokenIn(box) {
    let before = 0;
    for (const { id, tokens } of lineOf(box)) {
      if (id === this.path) return before + this.token;
      before += tokens.length;
    }
    return -1;
  }

  /** The box of the selected text. */
  get box() {
    const path = this.board.paths.get(this.path ?? -1);
    return path && this.board.branches.boxOf(path);
  }

  /** The user moved the cursor: the selection goes with it along its text. */
  followCursor() {
    const path = this.path === null ? undefined : this.board.paths.get(this.path);
    if (!path) return this.board.render();
    const place = this.board.records.tokenOfStep(path, this.board.cursor);
    this.choose(place.path, place.token);
  }

  /**
   * Select this token, whatever hides it now.
   * @param {TokenPlace} place
   */
  reveal({ path, token }) {
    const { board } = this;
    const found = board.paths.get(path);
    const step = (found?.born ?? 0) + token;
    if (found && !board.branches.isShown(found)) board.branches.showAll();
    if (step > board.cursor) board.replay.goTo(step);
    board.tree.camera.release();
    this.choose(path, token);
  }

  /**
   * Select the last token of the path above or below.
   * @param {-1 | 0 | 1} direction 0: of the selected path itself
   */
  goToNeighbour(direction) {
    const { board } = this;
    const { y } = board.layout;
    const shown = board.shownPaths().sort((one, other) => y[one.id] - y[other.id]);
    if (!shown.length) return;
    const at = this.box ? shown.indexOf(this.box) : -1;
    const next = shown[Math.min(shown.length - 1, Math.max(0, at + direction))];
    this.chooseLast(next);
    board.tree.focusBox(next.id);
  }
}
