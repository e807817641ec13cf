// Which boxes of the tree are in the picture, so a tree of any size has few elements. If a branch
// has no room for one line per text, one box stands for the branch until the camera comes near; and
// in large letters, boxes that an edge of the picture cuts are hidden.

/** @import { TreeView } from "./tree.js" */
/** @import { Path, Point, Size } from "./types.d.ts" */
import { set, shape } from "./elements.js";
import { percent } from "./formatting.js";
import { BOX, MARKS_DRAWN } from "./layout.js";
import { edgeCurve, edgeWidth } from "./path_box.js";
import { childrenOf, statusAt, weightAt } from "./paths.js";

const FEW = 48; // boxes; up to this many, all are drawn wherever they are
const MARGIN = 60; // px around the picture, so boxes exist before they scroll in
const FAR = 6; // px between texts on the screen; closer ones cannot be told apart
const LOWEST = 24; // px; a branch that is lower on the screen then shares one box

/**
 * The extent of a branch: its first box and all that grew from it.
 * @typedef {{ low: number, high: number, right: number, texts: number }} Room px of the layout
 */

/** Finds the boxes to draw. */
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
    this.children = childrenOf(drawn);
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

const WORDS_X = 6; // px on the screen, from the left edge of the box
const WORDS = { smallest: 8, largest: 11 }; // px on the screen; lower boxes have no words
const LOWEST_BOX = 3; // px on the screen
const NARROWEST_BOX = 70; // px on the screen
const GAP = 1; // px on the screen between two boxes

/**
 * One box for a branch that is too small on the screen for one line per text: it shows how many texts
 * the branch has and their total weight. The box is as high as the branch; a click brings the camera
 * closer, and then the texts are drawn.
 */
export class SummaryBox {
  /** @param {TreeView} tree @param {Path} path that the branch begins with */
  constructor(tree, path) {
    this.tree = tree;
    this.view = tree.view;
    this.path = path;
    this.frame = shape("rect", { class: "frame", rx: 3 });
    this.text = shape("text", { class: "summary-words", y: 4 });
    this.help = shape("title");
    const state = {
      class: "box summary",
      role: "treeitem",
      tabindex: "-1",
      "data-branch": path.id,
    };
    this.group = shape("g", state, this.frame, this.text, this.help);
    this.edge = shape("path", { class: "edge" });
    tree.boxLayer.append(this.group);
    tree.edgeLayer.append(this.edge);
    /** The path and all that grew from it. @type {Path[]} */
    this.all = [];
    this.changes = -1; // `branches.changes` when `all` was found
    this.words = "";
    this.group.addEventListener("pointerenter", () => tree.send("hover", path.id));
    this.group.addEventListener("pointerleave", () => tree.send("hover", null));
  }

  remove() {
    if (this.group.matches(":focus")) this.tree.send("takeFocus");
    this.group.remove();
    this.edge.remove();
  }

  /** Show what the branch contains at the cursor. */
  render() {
    const { cursor, found, branches } = this.view;
    if (this.changes !== branches.changes) {
      this.changes = branches.changes;
      this.all = this.tree.inSight.allFrom(this.path);
    }
    const begun = this.all.filter((path) => this.view.hasStarted(path));
    this.group.classList.toggle("hidden", !begun.length);
    this.edge.classList.toggle("hidden", !begun.length);
    if (!begun.length) return;
    const ends = ["live", "finished"];
    const texts = begun.filter((path) => ends.includes(statusAt(path, cursor)));
    const weight = texts.reduce((sum, path) => sum + weightAt(path, cursor), 0);
    const highlight = this.view.classOf(this.path.id);
    const isFound = begun.some(({ id }) => found.has(id));
    set(this.group, { class: `box summary${highlight}${isFound ? " found" : ""}` });
    set(this.edge, { class: `edge${highlight}` });
    this.edge.style.strokeWidth = edgeWidth(weight);
    const words = texts.length ? this.wordsOf(texts.length, weight) : droppedWords(begun, cursor);
    if (words === this.words) return;
    this.words = this.text.textContent = words;
    this.help.textContent = `${words}: too small to be drawn here. Zoom in, or click.`;
    set(this.group, { "aria-label": this.help.textContent });
  }

  /** @param {number} count @param {number} weight */
  wordsOf(count, weight) {
    const words = `${count} ${count === 1 ? "text" : "texts"}`;
    return this.tree.store.sides ? words : `${words}, ${percent(weight)}`;
  }

  /** Place the box; its words keep their size on the screen. */
  draw() {
    const { tree } = this;
    const room = tree.inSight.rooms.get(this.path.id);
    if (!room) return;
    const { k, x: left } = tree.camera.at;
    const spread = tree.spread();
    const { x } = tree.placeOf(this.path);
    const y = ((room.low + room.high) / 2) * spread;
    const height = Math.max(LOWEST_BOX, ((room.high - room.low) * spread + BOX * spread) * k - GAP);
    const width = Math.max(NARROWEST_BOX, (room.right - x) * k);
    set(this.group, {
      transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${(1 / k).toFixed(3)})`,
    });
    set(this.frame, {
      width: width.toFixed(1),
      height: height.toFixed(1),
      y: (-height / 2).toFixed(1),
    });
    set(this.edge, { d: edgeCurve(tree.endOf(this.path.parent), { x, y }) });
    set(this.text, { x: (WORDS_X + Math.max(0, -left - x * k)).toFixed(1) }); // kept in view
    this.text.classList.toggle("hidden", height < WORDS.smallest);
    set(this.text, { "font-size": Math.min(WORDS.largest, height).toFixed(1) });
  }
}

/** @param {Path[]} paths @param {number} step */
function droppedWords(paths, step) {
  return `${paths.filter((path) => statusAt(path, step) === "pruned").length} dropped`;
}

/** @typedef {{ left: number, right: number, top: number, bottom: number }} Edges px */

/** @param {Edges} edges of a box in the tree @param {Point & { k: number }} camera @returns {Edges} */
function onScreen({ left, right, top, bottom }, { x, y, k }) {
  return { left: left * k + x, right: right * k + x, top: top * k + y, bottom: bottom * k + y };
}

/**
 * The edge of the picture that cuts a box; "" if none does.
 * @param {Edges} edges @param {Size} size of the picture
 * @returns {"top" | "bottom" | "left" | "right" | ""}
 */
function cutAt({ left, right, top, bottom }, { width, height }) {
  if (top < 0) return "top";
  if (bottom > height) return "bottom";
  if (left < 0) return "left";
  return right > width ? "right" : "";
}

/** @param {string} cut */
const isCut = (cut) => cut !== "";

/** Whether lines, and not only words, are cut in two. @param {string} cut */
const isCutAcross = (cut) => cut === "top" || cut === "bottom";

/**
 * Hides the boxes that an edge of the picture cuts, if only a part of the tree is shown in large
 * letters: half a word tells the viewer nothing.
 */
export class CutBoxes {
  /** @param {TreeView} tree */
  constructor(tree) {
    this.tree = tree;
    this.view = tree.view;
    this.above = shape("text", { class: "more", x: 2, y: "1em" });
    this.below = shape("text", { class: "more", x: 2 });
    this.areHidden = false;
  }

  /** Hide cut boxes if only a part of the tree is presented. */
  hide() {
    const { tree, view } = this;
    const { camera } = tree;
    const isPart = view.presents && !view.aligned && !camera.holdsAll;
    if (!isPart && !this.areHidden) return;
    this.areHidden = isPart;
    const size = camera.size();
    const half = view.layout.promptHeight / 2;
    const { x, y } = tree.promptEnd();
    const prompt = { left: 0, right: x, top: y - half, bottom: y + half };
    const isOut = cutAt(onScreen(prompt, camera.at), size) !== "";
    tree.prompt.group.classList.toggle("cut", isPart && isOut);
    const paths = view.shownPaths();
    const cuts = paths.map((path) => {
      const edges = tree.boxes.get(path.id)?.edges() ?? this.edgesOf(path);
      return isPart ? cutAt(onScreen(edges, camera.at), size) : "";
    });
    // If all lines are wider than the picture, parts of them are better than nothing.
    const hasWhole = cuts.includes("");
    const isHidden = hasWhole ? isCut : isCutAcross;
    const counts = { top: 0, bottom: 0, left: 0, right: 0, "": 0 };
    for (const [index, path] of paths.entries()) {
      tree.boxes.get(path.id)?.group.classList.toggle("cut", isHidden(cuts[index]));
      if (statusAt(path, view.cursor) !== "forked") counts[cuts[index]] += 1;
    }
    // There is no room for a word over lines that reach from edge to edge.
    this.above.textContent = counts.top && hasWhole ? `▲ ${counts.top} more` : "";
    this.below.textContent = counts.bottom && hasWhole ? `▼ ${counts.bottom} more` : "";
    set(this.below, { y: size.height - 6 });
  }

  /** The edges of an undrawn box with the marks after it. @param {Path} path @returns {Edges} */
  edgesOf(path) {
    const { x, y, width } = this.tree.placeOf(path);
    const half = (this.view.layout.boxHeights[path.id] ?? BOX) / 2;
    return { left: x, right: x + width + MARKS_DRAWN, top: y - half, bottom: y + half };
  }
}
