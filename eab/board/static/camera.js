// Which part of the tree is in view, and how large.

/** @import { TreeView } from "./tree.js" */
/** @import { Path } from "./types.d.ts" */
import { FONT_SIZE } from "./elements.js";
import { BOX, MARKS_DRAWN } from "./layout.js";
import { statusAt } from "./paths.js";

const MARGIN = 12;
const READABLE = 0.85; // scale; texts are shortened before they are drawn smaller (fitting.js)
export const SMALLEST_WHOLE = 0.02; // scale; there, branches that are too small share one box
const LARGEST = 1.3;
const LARGEST_PRESENTED = 1.2; // times the readable scale
const PRESENTED = 0.7; // least multiple of the readable scale at which a whole tree is presented
export const TINY = 0.45; // below this scale, boxes show only their entropies

export class Camera {
  /** @param {TreeView} tree */
  constructor(tree) {
    this.tree = tree;
    this.store = tree.store;
    this.view = tree.view;
    /** The camera's position; `goal` is where it is going. k: scale */
    this.at = { x: 0, y: 0, k: 1 };
    this.goal = this.at;
    this.movedByUser = false;
    /** The user's choice to show the whole tree or not; null: none. @type {boolean | null} */
    this.wantsWhole = null;
    this.placed = false; // whether it has had a goal; it jumps to the first one
    this.kept = Number.POSITIVE_INFINITY; // the largest scale while the run grows
  }

  reset() {
    this.movedByUser = this.placed = false;
    this.wantsWhole = null;
    this.kept = Number.POSITIVE_INFINITY;
  }

  /** Stay at this scale until a growing tree needs a smaller one. @param {number} scale */
  keep(scale) {
    this.kept = scale;
    this.placed = true;
  }

  /** Follow `showsWhole` again, after the user moved the camera. */
  release() {
    this.movedByUser = false;
  }

  /** Whether to show the whole tree; if not, texts are readable and growing paths stay in view. */
  get showsWhole() {
    return this.wantsWhole ?? (!this.view.presents || this.rowsFit());
  }

  /** Whether the whole tree is in the picture. */
  get holdsAll() {
    return this.showsWhole && !this.movedByUser;
  }

  /** Whether one line per text fits in large letters. */
  rowsFit() {
    const drawn = this.view.branches.drawn();
    const texts = drawn.filter(({ status }) => status !== "forked").length;
    return texts * BOX * PRESENTED * this.readable <= this.room().height;
  }

  toggleWhole() {
    this.wantsWhole = this.movedByUser || !this.showsWhole;
    this.movedByUser = false;
  }

  /** @param {number} factor */
  zoom(factor) {
    if (this.view.aligned) return; // then x is fixed by the steps
    const { x, y } = this.at;
    const k = Math.min(3, Math.max(SMALLEST_WHOLE, this.at.k * factor));
    const { width, height } = this.size();
    const [middleX, middleY] = [width / 2, height / 2];
    const ratio = k / this.at.k;
    this.moveTo({ x: middleX - (middleX - x) * ratio, y: middleY - (middleY - y) * ratio, k });
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    const { x, y, k } = this.at;
    this.moveTo({ x: x + (this.view.aligned ? 0 : dx), y: y + dy, k });
  }

  /** @param {{ x: number, y: number, k: number }} place */
  moveTo(place) {
    this.at = this.goal = place;
    this.movedByUser = true;
    this.apply();
  }

  /**
   * Move and zoom to a branch until it fills the picture or can be read.
   * @param {{ x: number, y: number }} place the left end of its middle line
   * @param {number} height of the branch
   */
  approach({ x, y }, height) {
    const size = this.size();
    const k = Math.min(READABLE, Math.max(2 * this.at.k, (size.height - 2 * MARGIN) / height));
    this.goal = { x: 4 * MARGIN - x * k, y: size.height / 2 - y * k, k };
    this.movedByUser = true;
    if (!this.view.animates) this.at = this.goal;
    this.apply();
    this.tree.send("animate");
  }

  apply() {
    const { x, y, k } = this.at;
    const transform = `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${k.toFixed(3)})`;
    this.tree.stage.setAttribute("transform", transform);
    this.tree.svg.classList.toggle("tiny", k < TINY);
    this.tree.cameraMoved();
  }

  /** The size of the picture in pixels. */
  size() {
    return this.view.sizes.of(this.tree.svg);
  }

  /** The part of the picture that the tree may fill. */
  room() {
    const { width, height } = this.size();
    return {
      width: Math.max(50, width - 2 * MARGIN),
      height: Math.max(50, height - 2 * MARGIN),
    };
  }

  /** The scale below which texts are shortened before they are drawn smaller. */
  get readable() {
    const { presents, textSize } = this.view;
    return presents ? textSize / FONT_SIZE : READABLE;
  }

  /** Aim at the whole tree, or at the growing paths. */
  aim() {
    if (this.movedByUser) return;
    const { aligned } = this.view;
    const { width, height } = this.tree.extent();
    const room = this.room();
    const k = aligned
      ? this.view.chartScale
      : this.scaleFor(room.width / width, room.height / height);
    const centre = this.centre(k);
    const along = Math.min(centre.right * k - room.width, centre.left * k);
    const x = MARGIN - follow(width * k - room.width, along);
    const overflow = height * k - room.height;
    const down = overflow > 0 ? follow(overflow, centre.y * k - room.height / 2) : overflow / 2;
    this.goal = { x: aligned ? 0 : x, y: MARGIN - down, k };
    if (!this.view.animates || !this.placed) this.at = this.goal;
    this.placed = true;
    this.apply();
  }

  /**
   * The place to follow: the selected path, or the mean of the paths that grow at the cursor. If
   * the path nearest to that mean would not be visible there, that path.
   * @param {number} scale
   * @returns {{ left: number, right: number, y: number }} left: the start of the middle path, if
   *   all of that path fits
   */
  centre(scale) {
    const { layout } = this.view;
    const { width, height } = this.room();
    const followed = this.followed();
    const places = followed.map((path) => ({
      ...this.tree.placeOf(path),
      half: (layout.boxHeights[path.id] ?? BOX) / 2,
    }));
    const mean = places.reduce((sum, { y }) => sum + y, 0) / Math.max(1, places.length);
    const isSeen = (/** @type {{ y: number, half: number }} */ place, /** @type {number} */ y) =>
      Math.abs(place.y - y) + place.half <= height / scale / 2;
    const [middle] = places.sort((a, b) => Math.abs(a.y - mean) - Math.abs(b.y - mean));
    const y = middle && !isSeen(middle, mean) ? middle.y : mean;
    const ends = places.filter((place) => isSeen(place, y)).map((place) => place.x + place.width);
    const right = Math.max(layout.promptWidth, ...ends) + MARKS_DRAWN;
    const fits = middle && (middle.width + MARKS_DRAWN) * scale <= width;
    return { left: fits ? middle.x : right, right, y };
  }

  /** The selected path, or the paths that grow at the cursor, or all leaves. @returns {Path[]} */
  followed() {
    const { box, cursor } = this.view;
    const shown = this.view.shownPaths();
    const selected = shown.filter((path) => path === box);
    const live = shown.filter((path) => statusAt(path, cursor) === "live");
    const leaves = shown.filter((path) => statusAt(path, cursor) !== "forked");
    return [selected, live, leaves].find((paths) => paths.length) ?? [];
  }

  /** @param {number[]} fitting scales at which the tree fits */
  scaleFor(...fitting) {
    const smallest = this.showsWhole ? SMALLEST_WHOLE : this.readable;
    const largest = this.view.presents ? LARGEST_PRESENTED * this.readable : LARGEST;
    const kept = this.store.isGrowing ? this.kept : largest;
    return Math.max(smallest, Math.min(largest, kept, ...fitting));
  }

  /**
   * Move by one frame.
   * @param {number} ease the fraction of the remaining way to move
   * @returns {boolean} whether the camera still moves
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

/**
 * How far the camera moves along a side that does not fit.
 * @param {number} most @param {number} wanted
 */
function follow(most, wanted) {
  return Math.max(0, Math.min(most, wanted));
}
