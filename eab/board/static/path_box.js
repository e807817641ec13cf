// The box of one path and its edge. They are created once, then moved and filled, never replaced.

/** @import { TreeView } from "./tree.js" */
/** @import { Cell, Path, Point, Status } from "./types.d.ts" */
import {
  FarStrip,
  FoldMark,
  joinedWords,
  markOf,
  nameOf,
  Strip,
  weightWords,
} from "./box_marks.js";
import { clip, set, shape } from "./elements.js";
import { percent } from "./formatting.js";
import { labelAt } from "./labels.js";
import { BOX, LINE, labelOf, MARKS_DRAWN } from "./layout.js";
import { lineOf, statusAt, textOf, textsAt, tokenCountAt, weightAt } from "./paths.js";

const TEXT_X = 13;
const BASELINE = 15; // of the first line, from the top of the box
const THINNEST_WITH_TEXT = 15; // px; lower boxes show only their entropies
const WEIGHT_X = 22; // px from the right edge
export const MARK_MIDDLE = 6; // px from the right edge to the middle of the mark of a fork
const WEIGHT_LINE = 12; // px; a text in two runs has two weights
const NEAR = 0.4; // px; a box this close to its place jumps to it

/**
 * @param {SVGGElement} layer
 * @param {string} kind "path" or "prompt"
 */
export function boxParts(layer, kind) {
  const frame = shape("rect", { class: "frame", rx: 6, height: BOX, y: -BOX / 2 });
  const text = shape("text", { class: "label" });
  const state = { class: `box ${kind}`, role: "treeitem", tabindex: "-1" };
  const group = shape("g", state, frame, text);
  layer.append(group);
  return { group, frame, text };
}

/**
 * Write the lines of a text, one below another.
 * @param {SVGTextElement} text @param {string[]} lines
 * @param {number} x left edge
 * @param {number} y baseline of the first line
 */
export function writeLines(text, lines, x, y) {
  const spans = lines.map((words, line) => shape("tspan", { x, y: y + line * LINE }, words));
  text.replaceChildren(...spans);
}

/** Path data of an edge. @param {Point} from @param {Point} to */
export function edgeCurve(from, to) {
  const middle = ((from.x + to.x) / 2).toFixed(1);
  const [fromX, fromY, toX, toY] = [from.x, from.y, to.x, to.y].map((value) => value.toFixed(1));
  return `M${fromX} ${fromY}C${middle} ${fromY} ${middle} ${toY} ${toX} ${toY}`;
}

/** The width of the edge to a text. @param {number} weight */
export function edgeWidth(weight) {
  return (1 + 6 * Math.sqrt(weight)).toFixed(2);
}

export class PathBox {
  /** @param {TreeView} tree @param {Path} path */
  constructor(tree, path) {
    this.tree = tree;
    this.store = tree.store;
    this.view = tree.view;
    this.path = path;
    this.hidden = false;
    const { group, frame, text } = boxParts(tree.boxLayer, "path");
    this.group = group;
    this.frame = frame;
    this.text = text;
    this.strip = new Strip(this);
    this.farStrip = new FarStrip(this);
    this.mark = shape("text", { class: "mark", y: 4 });
    this.weight = shape("text", { class: "weight" });
    this.tip = shape("circle", { class: "tip", r: 3.5 });
    this.ring = shape("circle", { class: "decides", cy: 0 });
    this.share = shape("text", { class: "share", y: -4, x: -6 });
    this.number = shape("text", { class: "path-number", x: 3 });
    this.edge = shape("path", { class: "edge" });
    this.fold = new FoldMark(this.view, path.id);
    this.thickness = ""; // of the edge
    this.isTiny = tree.isTiny; // whether only entropies are drawn
    this.putParts();
    group.dataset.path = String(path.id);
    group.addEventListener("pointerenter", () => tree.send("hover", path.id));
    group.addEventListener("pointerleave", () => tree.send("hover", null));
    tree.edgeLayer.append(this.edge);
    this.stub = false;
    this.radius = 0; // of the ring around the mark of its fork
    this.width = 0;
    this.height = BOX;
    /** Where each token stands in the box. @type {Cell[]} */
    this.cells = [];
    this.target = tree.placeOf(path);
    const { playing, gliding } = this.view;
    // While the tree grows, a child starts at its parent; otherwise it starts at its own place.
    const start = playing || gliding ? tree.boxes.get(path.parent)?.rightEnd() : undefined;
    /** @type {Point} */
    this.at = start ?? { x: this.target.x, y: this.target.y };
    this.filledWith = "";
    this.drawnAt = "";
    this.isLeaf = true; // when last drawn
  }

  /** Put the parts into the box; if it is tiny, only those that can be seen. */
  putParts() {
    if (this.isTiny) return this.group.replaceChildren(this.farStrip.node);
    const { frame, text, strip, mark, weight, tip, ring, share, fold, number } = this;
    const marks = [mark, weight, tip, ring, share, fold.node, number];
    this.group.replaceChildren(frame, text, strip.node, ...marks);
  }

  remove() {
    this.passFocus();
    this.group.remove();
    this.edge.remove();
  }

  /** @param {boolean} hidden */
  hide(hidden) {
    if (hidden) this.passFocus();
    this.hidden = hidden;
    this.group.classList.toggle("hidden", hidden);
    this.edge.classList.toggle("hidden", hidden);
  }

  /** Pass the keyboard focus to the board if this box has it and is no longer drawn. */
  passFocus() {
    if (this.group.matches(":focus")) this.tree.send("takeFocus");
  }

  /** @returns {Point} */
  rightEnd() {
    return { x: this.at.x + this.width, y: this.at.y };
  }

  /** The edges of the box, including the marks after it. */
  edges() {
    const { x, y } = this.at;
    const half = this.height / 2;
    const right = x + this.width + (this.isLeaf ? MARKS_DRAWN : 0);
    return { left: x, right, top: y - half, bottom: y + half };
  }

  // ---- filling

  /** @param {Path} path */
  render(path) {
    this.path = path;
    const { cursor, animates, layout } = this.view;
    const status = statusAt(path, cursor);
    this.isLeaf = status !== "forked";
    this.target = this.tree.placeOf(path);
    if (!animates) this.at = { x: this.target.x, y: this.target.y };
    this.stub = path.status === "pruned";
    this.radius = status === "forked" ? this.view.ringOf(path) : 0;
    this.height = this.heightOf(layout.boxHeights[path.id] ?? BOX);
    this.classify(path, status);
    const selected = this.view.tokenIn(path);
    const filledWith = this.stateOf(path, status, selected).join();
    if (this.filledWith !== filledWith) {
      this.filledWith = filledWith;
      this.fill(path, status, selected);
      this.tree.tell(this);
    }
    if (!this.drawnAt) this.draw(); // else a new box is in the corner until the next frame
  }

  /** Set classes, edge width and visible parts. @param {Path} path @param {Status} status */
  classify(path, status) {
    const { isTiny } = this.tree;
    if (this.isTiny !== isTiny) {
      this.isTiny = isTiny;
      this.putParts();
    }
    const classes = `${this.stub ? " stub" : ""}${this.view.classOf(path.id)}`;
    const texts = path.joined?.all ?? [path];
    const foundClass = texts.some(({ id }) => this.view.found.has(id)) ? " found" : "";
    const wording = status === "forked" && this.view.isWording(path) ? " wording" : "";
    const thin = this.height < THINNEST_WITH_TEXT ? " thin" : "";
    set(this.group, { class: `box path ${status}${classes}${foundClass}${wording}${thin}` });
    const drawn = path.drawn || path.status === "given" ? " drawn" : "";
    set(this.edge, { class: `edge${classes}${foundClass}${drawn}` });
    const label = labelAt(this.store, path, this.view.cursor);
    set(this.frame, { class: label < 0 ? "frame" : `frame labelled label-${label}` });
    const thickness = edgeWidth(weightAt(path, this.view.cursor));
    if (this.thickness === thickness) return;
    this.thickness = thickness;
    this.edge.style.strokeWidth = thickness;
  }

  /**
   * The values that the parts of the box depend on.
   * @param {Path} path @param {Status} status @param {number} selected index of a token, or -1
   */
  stateOf(path, status, selected) {
    const { aligned, branches, cursor, focused, layout } = this.view;
    const width = this.target.width.toFixed(1);
    const size = [width, this.height, layout.perLine[path.id], this.isTiny, aligned, focused];
    const count = tokenCountAt(path, cursor);
    const words = [count, path.tokens.length, selected, this.stub, this.store.whatIf];
    if (this.isTiny) return [...size, ...words];
    const marked = path.joined ? textsAt(path, cursor).length : branches.foldedAt(path.id).weight;
    const label = labelAt(this.store, path, cursor);
    const marks = [
      status,
      weightAt(path, cursor),
      this.radius,
      marked,
      layout.only[path.id],
      label,
    ];
    return [...size, ...words, ...marks];
  }

  /** @param {Path} path @param {Status} status @param {number} selected index of a token, or -1 */
  fill(path, status, selected) {
    const { height } = this;
    const { aligned, cursor } = this.view;
    const count = tokenCountAt(path, cursor);
    if (this.isTiny) {
      this.width = this.farStrip.render(path, count, selected);
      return;
    }
    const lines = aligned ? [this.fillAligned(path, count)] : this.fillLabel(path, count);
    set(this.frame, { width: this.width.toFixed(1), height, y: -height / 2 });
    const first = this.stub || aligned ? 3 : BASELINE - height / 2;
    writeLines(this.text, lines, this.textLeft(), this.stub ? 1 : first);
    set(this.number, { y: -height / 2 - 2 });
    this.number.textContent = String(lineOf(path).at(-1)?.id);
    this.fillMarks(path, status);
    this.strip.render(path, selected);
  }

  /** Name the box for screen readers. */
  tell() {
    const { path, view } = this;
    const { cursor } = view;
    const words = textOf(path, tokenCountAt(path, cursor));
    const weights = weightWords(this.store, path, cursor);
    const texts = path.joined ? joinedWords(view, path).name : "";
    const name = nameOf(path, statusAt(path, cursor), words, weights, texts);
    set(this.group, { "aria-label": name });
  }

  /**
   * Fill the marks before and after the box.
   * @param {Path} path @param {Status} status
   */
  fillMarks(path, status) {
    const { height } = this;
    const { aligned, layout } = this.view;
    const weights = weightWords(this.store, path, this.view.cursor);
    this.mark.textContent = markOf(path, status);
    set(this.mark, { x: this.width + (status !== "forked" ? 6 : aligned ? 1 : 3) });
    set(this.ring, { cx: this.width + MARK_MIDDLE, r: this.radius.toFixed(1) });
    set(this.tip, { cx: this.width + 8 });
    const alone = path.parent < 0 || path.rest || layout.only[path.id];
    const others = path.drawn ? "others " : "";
    const share = path.status === "given" ? path.tokens[0].probability : path.share;
    this.share.textContent = alone ? "" : `${others}${percent(share)}`;
    const isLeaf = status === "live" || status === "finished" || status === "given";
    const texts = path.joined ? this.fold.count(path, this.width + WEIGHT_X) : "";
    const top = texts ? -2 : 4 - ((weights.length - 1) * WEIGHT_LINE) / 2;
    const shown = isLeaf && this.store.paths.size > 1 ? weights : [];
    const lines = shown.map((words, line) => {
      const place = { x: this.width + WEIGHT_X, y: top + line * WEIGHT_LINE };
      return shape("tspan", place, words);
    });
    this.weight.replaceChildren(...lines);
    const right = status === "forked" ? this.width : null;
    if (!path.joined) this.fold.place(right, height / 2, layout.ends[path.id]);
  }

  /** Set width and cells from the words in the box. @param {Path} path @param {number} count */
  fillLabel(path, count) {
    const label = labelOf(this.view, path, count);
    const start = this.textLeft();
    this.width = label.width + start + 9;
    this.cells = label.cells; // new with each label
    for (const cell of this.cells) {
      cell.left += start;
      cell.right += start;
    }
    return label.lines;
  }

  /**
   * Set width and cells from the steps.
   * @param {Path} path @param {number} count
   */
  fillAligned(path, count) {
    const { x, width } = this.target;
    this.width = (width * count) / path.tokens.length;
    this.cells = Array.from({ length: count }, (_, index) => ({
      line: 0,
      left: Math.max(2, this.tree.stepX(path.born + index - 0.5) - x),
      right: Math.min(this.width - 2, this.tree.stepX(path.born + index + 0.5) - x),
    }));
    return clip(textOf(path, count), width - 9);
  }

  textLeft() {
    return this.view.aligned ? 5 : TEXT_X - 2;
  }

  /**
   * The height of the box, which is less by step, where rows are close together.
   * @param {number} height of the box when not by step
   */
  heightOf(height) {
    return this.view.aligned ? Math.max(6, height * Math.min(1, this.tree.spread())) : height;
  }

  /**
   * The token at this place in the box.
   * @param {number} x from its left edge
   * @param {number} y from its middle
   */
  tokenAt(x, y) {
    if (this.isTiny) return this.farStrip.tokenAt(x, tokenCountAt(this.path, this.view.cursor));
    const lowest = this.cells.at(-1)?.line ?? 0;
    const line = Math.min(lowest, Math.max(0, Math.floor((y + this.height / 2) / LINE)));
    const index = this.cells.findIndex((cell) => cell.line === line && x < cell.right);
    return index < 0 ? this.cells.findLastIndex((cell) => cell.line <= line) : index;
  }

  // ---- movement

  /**
   * Move towards its place by one frame.
   * @param {number} ease the fraction of the remaining way to move
   * @returns {boolean} whether the box still moves
   */
  tick(ease) {
    const [dx, dy] = [this.target.x - this.at.x, this.target.y - this.at.y];
    const x = Math.abs(dx) > NEAR ? this.at.x + dx * ease : this.target.x;
    const y = Math.abs(dy) > NEAR ? this.at.y + dy * ease : this.target.y;
    this.at = { x, y };
    return Math.abs(dx) > NEAR || Math.abs(dy) > NEAR;
  }

  /** Write the position of the box and its edge. */
  draw() {
    const parent = this.tree.boxes.get(this.path.parent);
    // The first path may have no words, and then no box except that of all its texts.
    const start = parent && !parent.hidden ? parent.rightEnd() : this.tree.promptEnd();
    const drawnAt = edgeCurve(start, this.at);
    if (this.drawnAt === drawnAt) return;
    this.drawnAt = drawnAt;
    const { x, y } = this.at;
    this.group.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    this.edge.setAttribute("d", drawnAt);
  }
}
