// Which part of the tree is in view, and how large.

/** @import { TreeView } from "./tree.js" */

const MARGIN = 14;
const SMALLEST = 0.72; // smaller text cannot be read: the camera follows the newest boxes instead
const SMALLEST_WHOLE = 0.1;
const LARGEST = 1.15;
const LARGEST_PRESENTED = 1.6;
const TALLEST = 760; // px, of the picture
const SHORTEST = 150;
export const TINY = 0.45; // below this scale boxes show their entropies only

export class Camera {
  /** @param {TreeView} tree */
  constructor(tree) {
    this.tree = tree;
    this.board = tree.board;
    /** Where the camera is, and where it is going. k: scale */
    this.at = { x: 0, y: 0, k: 1 };
    this.goal = this.at;
    this.movedByUser = false;
    this.showsWhole = false; // all of the tree, however small
    this.placed = false; // whether it has had a goal; before, it jumps there
  }

  reset() {
    this.movedByUser = this.showsWhole = this.placed = false;
  }

  /** Follow what is new again, or show what `showsWhole` says. */
  release() {
    this.movedByUser = false;
  }

  toggleWhole() {
    this.showsWhole = this.movedByUser || !this.showsWhole;
    this.movedByUser = false;
  }

  /** @param {number} factor */
  zoom(factor) {
    if (this.board.aligned) return; // there, x belongs to the steps
    const { x, y } = this.at;
    const k = Math.min(3, Math.max(0.1, this.at.k * factor));
    const size = this.board.sizes.of(this.tree.svg);
    const [middleX, middleY] = [size.width / 2, size.height / 2];
    const ratio = k / this.at.k;
    this.moveTo({ x: middleX - (middleX - x) * ratio, y: middleY - (middleY - y) * ratio, k });
  }

  /**
   * @param {number} dx
   * @param {number} dy
   */
  pan(dx, dy) {
    const { x, y, k } = this.at;
    this.moveTo({ x: x + (this.board.aligned ? 0 : dx), y: y + dy, k });
  }

  /** @param {{ x: number, y: number, k: number }} place */
  moveTo(place) {
    this.at = this.goal = place;
    this.movedByUser = true;
    this.apply();
  }

  apply() {
    const { x, y, k } = this.at;
    const transform = `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${k.toFixed(3)})`;
    this.tree.stage.setAttribute("transform", transform);
    this.tree.svg.classList.toggle("tiny", k < TINY);
  }

  /** Show everything while that can be read; otherwise keep what grows in view. */
  aim() {
    if (this.movedByUser) return;
    const { aligned } = this.board;
    const { width, height } = this.tree.extent();
    const room = this.board.sizes.of(this.tree.svg).width - 2 * MARGIN;
    const k = aligned ? 1 : this.scaleFor(room / width, this.tallest() / height);
    const needed = height * k + 2 * MARGIN;
    const tall = Math.round(Math.max(SHORTEST, Math.min(this.tallest() + 2 * MARGIN, needed)));
    this.tree.svg.style.height = `${tall}px`;
    const centre = this.tree.centre();
    const x = MARGIN - Math.max(0, Math.min(width * k - room, centre.right * k - room));
    const overflow = needed - tall;
    const follow = Math.max(0, Math.min(overflow, centre.y * k + MARGIN - tall / 2));
    const y = overflow > 0 ? MARGIN - follow : MARGIN - overflow / 2;
    this.goal = { x: aligned ? 0 : x, y, k };
    if (!this.board.animates || !this.placed) this.at = this.goal;
    this.placed = true;
    this.apply();
  }

  /** @param {number[]} fitting scales at which the tree fits */
  scaleFor(...fitting) {
    const presenting = this.board.presentation.isOn;
    const smallest = this.showsWhole ? SMALLEST_WHOLE : presenting ? 1 : SMALLEST;
    const largest = presenting ? LARGEST_PRESENTED : LARGEST;
    return Math.max(smallest, Math.min(largest, ...fitting));
  }

  /** The height in pixels that the tree may take. */
  tallest() {
    const picture = this.board.presentation.isOn ? Math.max(380, innerHeight - 530) : TALLEST;
    return picture - 2 * MARGIN;
  }

  /**
   * One frame.
   * @param {number} ease the part of the way that is gone in a frame
   * @returns {boolean} whether it still moves
   */
  tick(ease) {
    const { x, y, k } = this.goal;
    const [dx, dy, dk] = [x - this.at.x, y - this.at.y, k - this.at.k];
    if (Math.abs(dx) + Math.abs(dy) + 400 * Math.abs(dk) < 0.6) return false;
    this.at = { x: this.at.x + dx * ease, y: this.at.y + dy * ease, k: this.at.k + dk * ease };
    this.apply();
    return true;
  }
}
