// The mark of the folded branches of a fork: how many there are, next to the mark of the fork.

/** @import { Board } from "./board.js" */
import { set, shape } from "./elements.js";

export class FoldMark {
  /**
   * @param {Board} board
   * @param {number} fork path that forks
   */
  constructor(board, fork) {
    this.board = board;
    this.fork = fork;
    this.node = shape("text", { class: "fold", y: 17, "data-fork": fork });
    this.words = document.createTextNode("");
    this.help = shape("title");
    this.node.append(this.words, this.help);
  }

  /** @param {number | null} right edge of the box that forks; null where it has not forked */
  place(right) {
    const count = right === null ? 0 : this.board.branches.foldedAt(this.fork);
    this.words.data = count ? `+${count}` : "";
    const noun = count === 1 ? "small branch" : "small branches";
    this.help.textContent = `${count} ${noun}: dropped, or under 1%. Click to see.`;
    set(this.node, { x: (right ?? 0) + 2 });
  }
}
