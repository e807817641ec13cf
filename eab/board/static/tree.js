// The tree: a box per path, and an edge from its parent.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path, PictureArea, Point, Send, TokenPlace } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */
import { FoldMark } from "./box_marks.js";
import { Camera, TINY } from "./camera.js";
import { stepX } from "./chart_frame.js";
import { fading, set, shape } from "./elements.js";
import { CutBoxes, InSight, SummaryBox } from "./in_sight.js";
import { Tooltip, tokenTip } from "./inspector.js";
import { BOX, LINE, MARKS } from "./layout.js";
import { boxParts, MARK_MIDDLE, PathBox, writeLines } from "./path_box.js";
import { placeIn } from "./paths.js";

const TIGHTEST = 0.28; // by step, rows may be this close together
const CLOSEST = 1; // otherwise, because closer boxes would touch
const TINIEST = 0.5; // if boxes show only entropies
const WIDEST = 1.7; // if there is room
const PICTURE_MARGIN = 14;
const PAUSE_MS = 250; // without changes, before many boxes get new names
const CLICK = 3; // px; how far the pointer may move during a click

export class TreeView {
  /**
   * @param {RunStore} store @param {ViewState} view @param {Send} send
   * @param {SVGSVGElement} chart whose steps the tree is aligned with, by step
   */
  constructor(store, view, send, chart) {
    this.store = store;
    this.view = view;
    this.send = send;
    this.chart = chart;
    this.tooltip = new Tooltip();
    this.cursor = shape("line", { class: "cursor" });
    this.edgeLayer = shape("g", { class: "edges" });
    this.boxLayer = shape("g", { class: "boxes" });
    this.stage = shape("g", {}, this.edgeLayer, this.boxLayer);
    const name = { class: "tree", role: "tree", "aria-label": "Tree of generated texts" };
    this.cut = new CutBoxes(this);
    this.svg = shape("svg", name, this.cursor, this.stage, this.cut.above, this.cut.below);
    /** @type {Map<number, PathBox>} */
    this.boxes = new Map();
    /** Boxes for branches that are too small to be drawn. @type {Map<number, SummaryBox>} */
    this.summaries = new Map();
    this.inSight = new InSight(this);
    this.drawsAll = false; // when saved as a file, wherever the camera is
    this.isDrawing = false;
    /** Boxes whose accessible names are outdated. @type {Set<PathBox>} */
    this.untold = new Set();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.telling = undefined;
    this.lastSpread = 1;
    this.spreadWith = /** @type {unknown[]} */ ([]); // the inputs of `lastSpread`
    this.prompt = boxParts(this.boxLayer, "prompt");
    this.promptRing = shape("circle", { class: "decides", cy: 0 });
    this.promptFold = new FoldMark(view, 0);
    this.prompt.group.append(this.promptRing, this.promptFold.node);
    this.promptRight = 0;
    this.camera = new Camera(this);
    /** Where the pointer was pressed. @type {(Point & { moved: boolean }) | null} */
    this.pressed = null;
    this.listen();
  }

  close() {
    clearTimeout(this.telling);
  }

  clear() {
    for (const boxes of [this.boxes, this.summaries]) {
      for (const box of boxes.values()) box.remove();
      boxes.clear();
    }
    this.camera.reset();
  }

  /** Let the words of all boxes fade where they are. */
  fade() {
    for (const { group, frame, text, strip, edge } of this.boxes.values()) {
      const words = fading(frame, text, strip.node);
      set(words, { transform: group.getAttribute("transform") ?? "" });
      this.edgeLayer.append(fading(edge), words);
    }
  }

  // ---- pointer

  listen() {
    this.svg.addEventListener("pointerdown", (event) => {
      this.pressed = { x: event.clientX, y: event.clientY, moved: false };
    });
    this.svg.addEventListener("pointermove", (event) => this.pointerMoved(event));
    this.svg.addEventListener("pointerleave", () => this.tooltip.hide());
    this.svg.addEventListener("click", (event) => {
      const fold = /** @type {Element} */ (event.target).closest(".fold");
      if (fold) return this.send("unfold", Number(fold.getAttribute("data-fork")));
      if (!this.pressed || this.pressed.moved) return;
      const summary = /** @type {Element} */ (event.target).closest(".summary");
      if (summary) return this.approach(Number(summary.getAttribute("data-branch")));
      const place = this.tokenUnder(event);
      if (place) this.send("select", place.path, place.token);
    });
    const zoom = (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey && !event.metaKey) return; // leave scrolling to the page
      event.preventDefault();
      this.camera.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15);
    };
    this.svg.addEventListener("wheel", zoom, { passive: false });
  }

  /** @param {PointerEvent} event */
  pointerMoved(event) {
    this.explain(event);
    if (!event.buttons) this.pressed = null;
    if (!this.pressed) return;
    const [dx, dy] = [event.clientX - this.pressed.x, event.clientY - this.pressed.y];
    if (Math.abs(dx) + Math.abs(dy) < CLICK && !this.pressed.moved) return;
    this.pressed = { x: event.clientX, y: event.clientY, moved: true };
    this.camera.pan(dx, dy);
  }

  /** Move the camera to a branch, so its texts are drawn. @param {number} id */
  approach(id) {
    const room = this.inSight.rooms.get(id);
    if (!room) return;
    const [low, high] = [room.low * this.spread(), room.high * this.spread()];
    const place = { x: this.view.layout.x[id] ?? 0, y: (low + high) / 2 };
    this.camera.approach(place, high - low + BOX);
  }

  /**
   * @param {MouseEvent} event
   * @returns {TokenPlace | null} the token under the pointer
   */
  tokenUnder(event) {
    const target = /** @type {Element} */ (event.target);
    const group = /** @type {SVGGElement | null} */ (target.closest(".box.path"));
    const box = this.boxes.get(Number(group?.dataset.path ?? -1));
    if (!box) return null;
    const { left, top } = this.svg.getBoundingClientRect();
    const { x, y, k } = this.camera.at;
    const stageX = (event.clientX - left - x) / k;
    const stageY = (event.clientY - top - y) / k;
    const token = box.tokenAt(stageX - box.at.x, stageY - box.at.y);
    const { path, index } = placeIn(box.path, token);
    return { path: path.id, token: index };
  }

  /** Show the tooltip of the token under the pointer. @param {PointerEvent} event */
  explain(event) {
    const place = event.buttons ? null : this.tokenUnder(event);
    const path = place && this.store.paths.get(place.path);
    if (!place || !path?.tokens[place.token]) return this.tooltip.hide();
    this.tooltip.show(event, tokenTip(this.store, path, place.token));
  }

  // ---- places

  extent() {
    const { height } = this.view.layout;
    // The start of a text may be wider than the whole text when shortened.
    const all = this.inSight.areFew ? [...this.boxes.values()] : [];
    const drawn = all.filter((box) => !box.hidden && box.isLeaf);
    const ends = drawn.map((box) => box.target.x + box.width);
    const width = Math.max(this.view.layout.width, ...(this.view.aligned ? [] : ends));
    return { width: Math.max(width + MARKS, 100), height: Math.max(height * this.spread(), 30) };
  }

  /**
   * The distance between rows, as a factor: rows fill the height. They move closer together until
   * all fit if the tree is aligned by step or shows only entropies.
   */
  spread() {
    const { layout, aligned, presents, textSize } = this.view;
    const { wantsWhole } = this.camera;
    const now = [layout, aligned, presents, textSize, wantsWhole, this.camera.size()];
    const isSame = now.every((value, index) => value === this.spreadWith[index]);
    if (!isSame) {
      this.spreadWith = now;
      this.lastSpread = this.findSpread();
    }
    return this.lastSpread;
  }

  findSpread() {
    const room = this.camera.room();
    const { width, height } = this.view.layout;
    if (this.view.aligned) {
      const fitting = room.height / (height * this.view.chartScale);
      return Math.max(TIGHTEST, Math.min(WIDEST, fitting));
    }
    const scale = this.camera.scaleFor(room.width / (width + MARKS));
    const fitting = room.height / (height * scale);
    const isTiny = this.camera.showsWhole && room.height / height < TINY;
    return Math.max(isTiny ? TINIEST : CLOSEST, Math.min(WIDEST, fitting));
  }

  /** The middle of a step's band, by step. @param {number} step */
  stepX(step) {
    return stepX(this.store, this.view, this.chart, step);
  }

  /** @param {Path} path */
  placeOf(path) {
    const { layout, aligned } = this.view;
    const y = (layout.y[path.id] ?? 0) * this.spread();
    if (!aligned) return { x: layout.x[path.id] ?? 0, y, width: layout.boxWidths[path.id] ?? 20 };
    const from = this.stepX(path.born - 0.5);
    const to = this.stepX(path.born + path.tokens.length - 0.5);
    const gap = Math.min(8, (to - from) * 0.3);
    return { x: from + gap / 2, y, width: Math.max(3, to - from - gap) };
  }

  /** @returns {Point} */
  promptEnd() {
    const { y, height } = this.view.layout;
    return { x: this.promptRight, y: (y[0] ?? height / 2) * this.spread() };
  }

  /** The right end of a path's box, or else of the prompt. @param {number} id @returns {Point} */
  endOf(id) {
    const box = this.boxes.get(id);
    if (box && !box.hidden) return box.rightEnd();
    // The first path may have no words, and then no box except that of all its texts.
    const path = this.inSight.rooms.has(id) ? this.store.paths.get(id) : undefined;
    if (!path?.tokens.length) return this.promptEnd();
    const { x, y, width } = this.placeOf(this.view.branches.boxOf(path));
    return { x: x + width, y };
  }

  /**
   * Draw the whole tree for a file, not only the part in view, until `pictureDone`.
   * @returns {PictureArea | null}
   */
  pictureArea() {
    this.drawsAll = true;
    this.draw();
    this.tick(1);
    if (this.view.aligned) return null;
    const { width, height } = this.extent();
    return {
      width: Math.ceil(width) + 2 * PICTURE_MARGIN,
      height: Math.ceil(height) + 2 * PICTURE_MARGIN,
      transform: `translate(${PICTURE_MARGIN} ${PICTURE_MARGIN})`,
    };
  }

  pictureDone() {
    this.drawsAll = false;
    if (!this.inSight.areFew) this.draw();
  }

  // ---- drawing

  /** Whether the boxes show only entropies. */
  get isTiny() {
    return !this.inSight.areFew && !this.drawsAll && !this.view.aligned && this.camera.at.k < TINY;
  }

  render() {
    if (!this.view.outlined) this.draw();
  }

  draw() {
    this.isDrawing = true;
    this.inSight.update();
    const { areFew } = this.inSight;
    this.renderPrompt();
    if (areFew) this.renderBoxes(); // their widths determine the camera's goal
    if (this.view.aligned) {
      const x = this.stepX(this.view.cursor) * this.view.chartScale;
      set(this.cursor, { x1: x, x2: x, y1: 0, y2: 2000 });
    }
    this.camera.aim();
    this.isDrawing = false;
    if (!areFew) this.cameraMoved();
    this.send("animate");
  }

  /** Draw the boxes that the moved camera may now show. */
  cameraMoved() {
    if (!this.isDrawing && !this.inSight.areFew && !this.view.outlined) {
      this.inSight.update();
      this.renderBoxes();
    }
    this.cut.hide();
  }

  renderBoxes() {
    const { areFew, boxes } = this.inSight;
    const shown = new Set();
    for (const path of boxes) {
      if (!this.view.hasStarted(path)) continue;
      shown.add(path.id);
      this.boxOf(path).render(path);
    }
    const inSight = new Set(boxes.map(({ id }) => id));
    for (const [id, box] of this.boxes) {
      box.hide(!shown.has(id));
      if (areFew || inSight.has(id)) continue;
      box.remove();
      this.boxes.delete(id);
    }
    this.renderSummaries();
    if (this.untold.size) this.tellLater();
  }

  /** Name a box for screen readers; with many boxes, after a pause. @param {PathBox} box */
  tell(box) {
    if (this.inSight.areFew) return box.tell();
    this.untold.add(box);
  }

  tellLater() {
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      for (const box of this.untold) box.tell();
      this.untold.clear();
    }, PAUSE_MS);
  }

  renderSummaries() {
    const branches = new Set(this.inSight.branches.map(({ id }) => id));
    for (const [id, summary] of this.summaries) {
      if (branches.has(id)) continue;
      summary.remove();
      this.summaries.delete(id);
    }
    for (const path of this.inSight.branches) {
      const summary = this.summaries.get(path.id) ?? new SummaryBox(this, path);
      this.summaries.set(path.id, summary);
      summary.render();
      summary.draw();
    }
  }

  /** @param {Path} path */
  boxOf(path) {
    const box = this.boxes.get(path.id) ?? new PathBox(this, path);
    this.boxes.set(path.id, box);
    return box;
  }

  renderPrompt() {
    const { aligned, layout } = this.view;
    const left = aligned ? 2 : 0;
    this.promptRight = aligned ? Math.max(20, this.stepX(-0.5) - 8) : layout.promptWidth;
    const { group, frame, text } = this.prompt;
    const transform = `translate(${left} ${this.promptEnd().y})`;
    set(group, { transform, "aria-label": `Prompt: ${this.store.run.prompt}` });
    const height = aligned ? BOX : layout.promptHeight;
    set(frame, { width: this.promptRight - left, height, y: -height / 2 });
    // A fork right after the prompt has no box of its own.
    const root = this.store.paths.get(0);
    const ring = root && !root.tokens.length ? this.view.ringOf(root) : 0;
    set(this.promptRing, { cx: this.promptRight - left + MARK_MIDDLE, r: ring.toFixed(1) });
    const right = root && !root.tokens.length ? this.promptRight - left : null;
    this.promptFold.place(right, height / 2, false);
    // The lines are centred, because no entropies are below them.
    const first = 4.5 - ((layout.prompt.lines.length - 1) * LINE) / 2;
    if (aligned) writeLines(text, ["…"], 4, 4.5);
    else writeLines(text, layout.prompt.lines, 10, first);
  }

  /** @param {number} id */
  focusBox(id) {
    this.boxes.get(id)?.group.focus({ preventScroll: true });
  }

  /**
   * Move boxes, edges and camera by one frame.
   * @param {number} ease the fraction of the remaining way to move
   * @returns {boolean} whether anything still moves
   */
  tick(ease) {
    let moving = this.camera.tick(ease);
    for (const box of this.boxes.values()) moving = box.tick(ease) || moving;
    for (const box of this.boxes.values()) box.draw();
    this.cut.hide();
    return moving;
  }
}
