// The mark for what is not drawn: the number of small branches after a fork, or of texts with the
// same answer after a box. A click draws them.

/** @import { Path } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { foldedWords, joinedWords } from "./box_words.js";
import { set, shape } from "./elements.js";

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

  /**
   * Put it under the end of the box that forks, or after a box without drawn branches.
   * @param {number | null} right edge of the box; null if it has not forked
   * @param {number} bottom edge of the box
   * @param {boolean} isEnd whether no branches are drawn after the box
   */
  place(right, bottom, isEnd) {
    const { words, help } = foldedWords(this.view, this.fork);
    this.words.data = right === null ? "" : words;
    this.help.textContent = help;
    const end = right ?? 0;
    if (isEnd) set(this.node, { x: end + 16, y: 4, "text-anchor": "start" });
    else set(this.node, { x: end, y: bottom + 13, "text-anchor": "end" });
  }

  /**
   * @param {Path} box of several texts
   * @param {number} x
   * @returns {string} what the box stands for; "" if it is one text
   */
  count(box, x) {
    const { words, help, name } = joinedWords(this.view, box);
    this.words.data = words;
    this.help.textContent = help;
    set(this.node, { x, y: 10, "text-anchor": "start" });
    return name;
  }
}
