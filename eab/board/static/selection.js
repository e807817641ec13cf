// The selected token: what the drawer tells about, and what is bright in the pictures.

/** @import { Board } from "./board.js" */
/** @import { Path, TokenPlace } from "./types.d.ts" */
import { tokenCountAt } from "./path_state.js";

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

  drop() {
    this.clear();
    this.renderAll();
  }

  renderAll() {
    this.board.highlight.hover(null);
    this.board.render();
  }

  /**
   * The index of the selected token if it is in this path, otherwise -1.
   * @param {Path} path
   */
  tokenIn(path) {
    return this.path === path.id ? this.token : -1;
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
    const step = (board.paths.get(path)?.born ?? 0) + token;
    if (!board.inView(path)) board.branches.showAll();
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
    const at = shown.findIndex((path) => path.id === this.path);
    const next = shown[Math.min(shown.length - 1, Math.max(0, at + direction))];
    this.choose(next.id, tokenCountAt(next, board.cursor) - 1);
    board.tree.focusBox(next.id);
  }
}
