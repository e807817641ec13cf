// Where a lesson leads the board: once, then the user is free to move on.

/** @import { Board } from "./board.js" */
/** @import { Guide } from "./types.d.ts" */

export class Guidance {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    /** The guide that was followed last. */
    this.id = "";
  }

  /** @param {Guide | undefined} guide */
  follow(guide) {
    if (guide === undefined || guide.id === this.id) return;
    this.id = guide.id;
    const { selection, drawer, replay } = this.board;
    selection.clear();
    drawer.show(guide.drawer);
    if (guide.cursor !== null) replay.goTo(guide.cursor);
    if (guide.token !== null) selection.reveal({ path: guide.token[0], token: guide.token[1] });
  }
}
