// Which forks decide the answer and which only the wording: always said in words where a fork is
// explained, and drawn on the tree when the user switches it on.

/** @import { Board } from "./board.js" */
/** @import { ForkEffect, Message, Path } from "./types.d.ts" */

const SMALLEST = 7; // px, radius of a ring; its area grows with the share
const LARGEST = 13;

export class DecidingForks {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.isOn = false;
    /** Names the fork that decides most; "" where nothing can be said. */
    this.sentence = "";
    /** By the path that forks. @type {Map<number, ForkEffect>} */
    this.effects = new Map();
    /** Answers that several texts give, by the path that ends in it. @type {Map<number, string>} */
    this.answers = new Map();
  }

  /** @param {Message} message */
  take({ deciding }) {
    this.sentence = deciding?.sentence ?? "";
    const forks = deciding?.forks ?? [];
    this.effects = new Map(forks.map(([path, share, words]) => [path, { share, words }]));
    const answers = deciding?.answers ?? [];
    this.answers = new Map(answers.flatMap(([words, paths]) => paths.map((id) => [id, words])));
  }

  get available() {
    return this.effects.size > 0;
  }

  get shown() {
    return this.isOn && this.available;
  }

  toggle() {
    if (!this.available) return;
    this.isOn = !this.isOn;
    this.board.render();
  }

  /** What stands over the tree while it is switched on. */
  caption() {
    return this.shown ? this.sentence : "";
  }

  /**
   * Radius of the ring around the mark of a fork; 0 for none.
   * @param {Path} path that forks
   */
  radius(path) {
    const share = this.shown ? (this.effects.get(path.id)?.share ?? 0) : 0;
    return share > 0 ? Math.max(SMALLEST, LARGEST * Math.sqrt(share)) : 0;
  }

  /**
   * Whether the fork changes nothing but the wording.
   * @param {Path} path that forks
   */
  isWording(path) {
    return this.shown && this.effects.get(path.id)?.share === 0;
  }

  /**
   * What the fork before or after a token decides, in a sentence; "" if there is none.
   * @param {Path} path
   * @param {number} index of a token of the path
   */
  wordsAt(path, index) {
    const before = index === 0 ? this.effects.get(path.parent) : undefined;
    if (before) return `This fork ${before.words}.`;
    const after = index === path.tokens.length - 1 ? this.effects.get(path.id) : undefined;
    return after ? `The fork after it ${after.words}.` : "";
  }
}
