// The mark of what is not drawn: after a fork how many small branches, after a box how many texts with
// the same answer. A click draws them.

/** @import { Path } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { set, shape } from "./elements.js";
import { textsAt } from "./path_state.js";

export class FoldMark {
  /**
   * @param {ViewState} view
   * @param {number} fork path that forks
   */
  constructor(view, fork) {
    this.view = view;
    this.fork = fork;
    this.words = document.createTextNode("");
    this.help = shape("title");
    this.node = shape("text", { class: "fold", "data-fork": fork }, this.words, this.help);
  }

  /** @param {number | null} right edge of the box that forks; null where it has not forked */
  place(right) {
    const count = right === null ? 0 : this.view.branches.foldedAt(this.fork);
    this.words.data = count ? `+${count}` : "";
    const noun = count === 1 ? "small branch" : "small branches";
    this.help.textContent = `${count} ${noun}: dropped, or under 1%. Click to see.`;
    set(this.node, { x: (right ?? 0) + 2, y: 17 });
  }

  /**
   * @param {Path} box of several texts
   * @param {number} x
   * @returns {string} what the box stands for; "" while it is one text
   */
  count(box, x) {
    const count = textsAt(box, this.view.cursor).length;
    const words = `${count} texts with the answer “${box.joined?.answer}”`;
    this.words.data = count > 1 ? `${count} texts` : "";
    this.help.textContent = `${words}. Click to see.`;
    set(this.node, { x, y: 10 });
    return count > 1 ? words : "";
  }
}
