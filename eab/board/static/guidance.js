// Where a lesson or a lecturer leads the board: once, then the user is free to move on.

/** @import { Board } from "./board.js" */
/** @import { Guide, Lead } from "./types.d.ts" */

export class Guidance {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    /** The guide that was followed last. */
    this.id = "";
    /** Where a lecturer led it last. */
    this.leadId = "";
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

  /**
   * Stand where the lecturer's board stands.
   * @param {Lead} lead
   */
  lead(lead) {
    const { selection, replay, run, paths, lastStep } = this.board;
    if (lead.id === this.leadId || lead.run !== run.key) return;
    if (lead.token !== null && !paths.has(lead.token[0])) return; // it has not come yet
    this.leadId = lead.id;
    replay.goTo(lead.cursor ?? lastStep);
    if (lead.token === null) selection.drop();
    else selection.choose(...lead.token);
  }
}
