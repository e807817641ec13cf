// Finds the boxes of the tree to draw: those in the picture, so a tree of any size has few
// elements. If a branch has no room for one line per text, one box stands for the branch
// (summary_box.js) until the camera comes near.

/** @import { Edges } from "./cut_boxes.js" */
/** @import { Path } from "./types.d.ts" */
/** @import { TreeView } from "./tree.js" */
import { BOX, MARKS_DRAWN } from "./layout.js";

const FEW = 48; // boxes; up to this many, all are drawn wherever they are
const MARGIN = 60; // px around the picture, so boxes exist before they scroll in
const FAR = 6; // px between texts on the screen; closer ones cannot be told apart
const LOWEST = 24; // px; a branch that is lower on the screen then shares one box

/**
 * The extent of a branch: its first box and all that grew from it.
 * @typedef {{ low: number, high: number, right: number, texts: number }} Room px of the layout
 */

export class InSight {
  /** @param {TreeView} tree */
  constructor(tree) {
    this.tree = tree;
    this.view = tree.view;
    /** Boxes to draw, once their paths start. @type {Path[]} */
    this.boxes = [];
    /** The first paths of branches that share one box. @type {Path[]} */
    this.branches = [];
    /** Extents of branches, by the path's id. @type {Map<number, Room>} */
    this.rooms = new Map();
    /** @type {Map<number, Path[]>} */
    this.children = new Map();
    this.changes = -1; // `branches.changes` when the rooms were measured
    this.areFew = true;
  }

  /** Find the boxes again after the tree, the camera or the selection may have changed. */
  update() {
    const drawn = this.view.branches.drawn();
    this.measure(drawn);
    this.areFew = drawn.length <= FEW;
    this.boxes = [];
    this.branches = [];
    if (this.areFew || this.tree.drawsAll) this.boxes = drawn;
    else this.walk();
  }

  /** Measure the extent of each branch. @param {Path[]} drawn */
  measure(drawn) {
    const { branches, layout } = this.view;
    if (this.changes === branches.changes) return;
    this.changes = branches.changes;
    this.rooms.clear();
    this.children.clear();
    const ids = new Set(drawn.map(({ id }) => id));
    for (const box of drawn) {
      const parent = ids.has(box.parent) ? box.parent : -1;
      const siblings = this.children.get(parent);
      if (siblings) siblings.push(box);
      else this.children.set(parent, [box]);
    }
    const inOrder = [...drawn].sort((a, b) => layout.rank[b.id] - layout.rank[a.id]);
    for (const { id } of inOrder) {
      const y = layout.y[id] ?? 0;
      const own = (this.children.get(id) ?? []).flatMap((child) => this.rooms.get(child.id) ?? []);
      this.rooms.set(id, {
        low: Math.min(y, ...own.map(({ low }) => low)),
        high: Math.max(y, ...own.map(({ high }) => high)),
        right: Math.max(
          (layout.x[id] ?? 0) + (layout.boxWidths[id] ?? 0),
          ...own.map(({ right }) => right),
        ),
        texts: own.length ? own.reduce((sum, { texts }) => sum + texts, 0) : 1,
      });
    }
  }

  /** Walk the tree from left to right, skipping what is outside the picture. */
  walk() {
    const frame = this.frame();
    const selected = this.view.box;
    const opened = selected ? this.tree.store.lineageOf(selected.id) : new Set();
    const pitch = BOX * this.tree.spread() * this.tree.camera.at.k;
    const isFar = pitch < FAR && !this.view.aligned;
    const pending = [...(this.children.get(-1) ?? [])].reverse();
    for (let box = pending.pop(); box; box = pending.pop()) {
      const isOpened = opened.has(box.id); // its box is drawn wherever it is
      if (!isOpened && !this.touches(frame, box, this.rooms.get(box.id))) continue;
      if (isFar && !isOpened && this.isLow(box)) {
        this.branches.push(box);
        continue;
      }
      if (isOpened || this.touches(frame, box)) this.boxes.push(box);
      pending.push(...[...(this.children.get(box.id) ?? [])].reverse());
    }
  }

  /** The picture with its margin, in the tree's units. @returns {Edges} */
  frame() {
    const { width, height } = this.tree.camera.size();
    const { x, y, k } = this.tree.camera.at;
    const [left, right] = [(-MARGIN - x) / k, (width + MARGIN - x) / k];
    return { left, right, top: (-MARGIN - y) / k, bottom: (height + MARGIN - y) / k };
  }

  /**
   * Whether a box with its edge, or any part of its branch if `room` is given, is in the picture.
   * @param {Edges} frame @param {Path} box @param {Room} [room] of the branch
   */
  touches({ left, right, top, bottom }, box, room) {
    const { tree } = this;
    const half = (this.view.layout.boxHeights[box.id] ?? BOX) / 2;
    const start = tree.endOf(box.parent);
    const { x, y, width } = tree.placeOf(box);
    const spread = tree.spread();
    const [low, high] = room ? [room.low * spread, room.high * spread] : [y, y];
    const end = room ? Number.POSITIVE_INFINITY : x + width + MARKS_DRAWN;
    if (Math.min(start.x, x) > right || end < left) return false;
    return Math.max(start.y, high + half) >= top && Math.min(start.y, low - half) <= bottom;
  }

  /** Whether a branch of several texts has no room for their lines. @param {Path} box */
  isLow({ id }) {
    const room = this.rooms.get(id);
    if (!room || room.texts < 2) return false;
    return (room.high - room.low + BOX) * this.tree.spread() * this.tree.camera.at.k < LOWEST;
  }

  /**
   * A path and all that grew from it, including folded and joined paths.
   * @param {Path} path
   */
  allFrom({ id }) {
    const { store } = this.tree;
    /** @type {Path[]} */
    const found = [];
    const pending = [id];
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      const path = store.paths.get(next);
      if (path) found.push(path);
      pending.push(...store.childrenOf(next).map((child) => child.id));
    }
    return found;
  }
}
