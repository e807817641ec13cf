// Moves the board to where a lesson or lecturer points, once; then the user is free to move on.

/** @import { RunStore } from "./run_store.js" */
/** @import { Guide, Lead, Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */

export class Guidance {
  /** @param {RunStore} store @param {ViewState} view @param {Send} send */
  constructor(store, view, send) {
    this.store = store;
    this.view = view;
    this.send = send;
    /** The guide that was followed last. */
    this.id = "";
    /** The lecturer's lead that was followed last. */
    this.leadId = "";
  }

  /** @param {Guide | undefined} guide */
  follow(guide) {
    if (guide === undefined || guide.id === this.id) return;
    this.id = guide.id;
    this.view.deselect();
    this.view.drawer = guide.drawer;
    if (guide.cursor !== null) this.send("goTo", guide.cursor);
    if (guide.token !== null) {
      this.send("reveal", { path: guide.token[0], token: guide.token[1] });
    }
  }

  /** Go to the place that the lecturer's board shows. @param {Lead} lead */
  lead(lead) {
    const { run, paths, lastStep } = this.store;
    if (lead.id === this.leadId || lead.run !== run.key) return;
    if (lead.token !== null && !paths.has(lead.token[0])) return; // not received yet
    this.leadId = lead.id;
    this.send("goTo", lead.cursor ?? lastStep);
    if (lead.token === null) this.send("deselect");
    else this.send("select", ...lead.token);
  }
}
