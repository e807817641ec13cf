// One line over the tree where the path limit dropped branches, and a way to what that means.

import { wordButton } from "./buttons.js";
/** @import { Board } from "./board.js" */
import { element } from "./elements.js";

export class LimitNote {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.root = element("p", { class: "limit-note", hidden: "" });
    this.words = element("span");
    this.why = wordButton("Why?", "what the path limit does to the weights", () => {
      board.drawer.show("help");
      board.drawer.scrollTo("limit-topic");
      board.render();
    });
    this.root.append(this.words, " ", this.why);
  }

  render() {
    const { limit } = this.board.run;
    this.root.hidden = limit === "";
    this.words.textContent = this.words.title = limit;
  }
}
