// The tree: a box per path, an edge from its parent. Boxes are kept and moved, never drawn anew.

import { shape, set, clip, diamond, percent, heat } from "./svg.js";
import { labelOf } from "./arrange.js";

const BOX = 24;
const STUB = 17; // of pruned paths
const STUB_TEXT = 11 / 13;
const TEXT_AT = 13;
const MARGIN = 14;
const MARKS = 44; // room right of a box for its mark
const SMALLEST = 0.72; // smaller text cannot be read: the camera follows the newest boxes instead
const TINY = 0.45; // below, boxes show their entropies only

export class TreeView {
  constructor(board) {
    this.board = board;
    this.svg = shape("svg", { class: "tree", role: "tree", "aria-label": "Tree of generated texts" });
    this.cursor = shape("line", { class: "cursor" });
    this.edges = shape("g", { class: "edges" });
    this.boxes = shape("g", { class: "boxes" });
    this.stage = shape("g");
    this.stage.append(this.edges, this.boxes);
    this.svg.append(this.cursor, this.stage);
    this.nodes = new Map();
    this.camera = this.goal = { x: 0, y: 0, k: 1 };
    this.touched = false; // whether the user moved the camera
    this.whole = false; // whether all of it must be in view, however small
    this.prompt = this.makeBox("prompt");
    this.listen();
  }

  // ---- camera

  listen() {
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => (from = { x: event.clientX, y: event.clientY, moved: false }));
    this.svg.addEventListener("pointermove", (event) => {
      this.point(event);
      if (!event.buttons) from = null;
      if (!from) return;
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (Math.abs(dx) + Math.abs(dy) < 3 && !from.moved) return;
      from = { x: event.clientX, y: event.clientY, moved: true };
      this.moveCamera({ x: this.camera.x + (this.board.aligned ? 0 : dx), y: this.camera.y + dy, k: this.camera.k });
    });
    this.svg.addEventListener("pointerleave", () => this.board.tip(null));
    this.svg.addEventListener("click", (event) => {
      const found = from && !from.moved && this.under(event);
      if (found) this.board.select(found.path.id, found.token);
    });
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page keeps its own scrolling
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15);
    }, { passive: false });
  }

  zoom(factor) {
    if (this.board.aligned) return; // there, x belongs to the steps
    const k = Math.min(3, Math.max(0.1, this.camera.k * factor));
    const [cx, cy] = [this.board.sizeOf(this.svg).width / 2, this.board.sizeOf(this.svg).height / 2];
    const ratio = k / this.camera.k;
    this.moveCamera({ x: cx - (cx - this.camera.x) * ratio, y: cy - (cy - this.camera.y) * ratio, k });
  }

  moveCamera(camera) {
    this.camera = this.goal = camera;
    this.touched = true;
    this.applyCamera();
  }

  applyCamera() {
    const { x, y, k } = this.camera;
    this.stage.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${k.toFixed(3)})`);
    this.svg.classList.toggle("tiny", k < TINY);
  }

  // Show everything while that stays readable; else keep what grows in view.
  aim() {
    const { width, height } = this.extent();
    const [smallest, largest, tallest] = this.limits();
    const room = this.board.sizeOf(this.svg).width - 2 * MARGIN;
    const k = this.board.aligned ? 1 : Math.max(smallest, Math.min(largest, room / width, (tallest - 2 * MARGIN) / height));
    const tall = Math.round(Math.max(150, Math.min(tallest, height * k + 2 * MARGIN)));
    this.svg.style.height = tall + "px";
    const focus = this.focus();
    const x = MARGIN - Math.max(0, Math.min(width * k - room, focus.right * k - room));
    const overflow = height * k + 2 * MARGIN - tall;
    const y = overflow > 0 ? MARGIN - Math.max(0, Math.min(overflow, focus.y * k + MARGIN - tall / 2)) : MARGIN - overflow / 2;
    this.goal = { x: this.board.aligned ? 0 : x, y, k };
    if (!this.board.animates || !this.aimed) this.camera = this.goal;
    this.aimed = true;
    this.applyCamera();
  }

  limits() {
    const large = this.board.presenting;
    const tallest = large ? Math.max(380, innerHeight - 530) : 760;
    return [this.whole ? 0.1 : large ? 1 : SMALLEST, large ? 1.6 : 1.15, tallest];
  }

  // The tree's file holds all of it, not only what is in view.
  wholePicture() {
    if (this.board.aligned) return null;
    const { width, height } = this.extent();
    return { width: Math.ceil(width) + 28, height: Math.ceil(height) + 28, transform: "translate(14 14)" };
  }

  extent() {
    const { width, height } = this.board.layout;
    return { width: Math.max(width + MARKS, 100), height: Math.max(height * this.squeeze(), 30) };
  }

  // The chosen path, else the middle of the paths that grow at the cursor.
  focus() {
    const shown = this.board.shownPaths();
    const live = shown.filter((path) => this.board.statusAt(path) === "live");
    const chosen = shown.filter((path) => path.id === this.board.selected.path);
    const wanted = chosen.length ? chosen : live.length ? live : shown.filter((path) => this.board.statusAt(path) !== "forked");
    const places = wanted.map((path) => this.place(path));
    const right = Math.max(this.board.layout.prompt_box, ...places.map((place) => place.x + place.width)) + MARKS;
    return { right, y: places.reduce((sum, place) => sum + place.y, 0) / Math.max(1, places.length) };
  }

  // ---- places

  // Rows move together where there are many: a little by step, and by half where only entropies are to be seen.
  squeeze() {
    const fitting = (this.limits()[2] - 2 * MARGIN) / this.board.layout.height;
    if (this.board.aligned) return Math.max(0.8, Math.min(1, fitting));
    return this.whole && fitting < TINY ? 0.5 : 1;
  }

  place(path) {
    const layout = this.board.layout;
    const y = (layout.y[path.id] ?? 0) * this.squeeze();
    if (!this.board.aligned) return { x: layout.x[path.id] ?? 0, y, width: layout.box[path.id] ?? 20 };
    const from = this.board.entropy.x(path.born - 0.5);
    const to = this.board.entropy.x(path.born + path.tokens.length - 0.5);
    const gap = Math.min(8, (to - from) * 0.3);
    return { x: from + gap / 2, y, width: Math.max(3, to - from - gap) };
  }

  // ---- boxes

  makeBox(kind) {
    const group = shape("g", { class: `box ${kind}`, role: "treeitem", tabindex: "-1" });
    const parts = {
      group,
      frame: shape("rect", { class: "frame", rx: 6, height: BOX, y: -BOX / 2 }),
      text: shape("text", { class: "label", x: TEXT_AT, y: 3 }),
      strip: shape("g", { class: "strip" }),
      mark: shape("text", { class: "mark", y: 4 }),
      tip: shape("circle", { class: "tip", r: 3.5 }),
      share: shape("text", { class: "share", y: -4, x: -6 }),
    };
    group.append(parts.frame, parts.text, parts.strip, parts.mark, parts.tip, parts.share);
    this.boxes.append(group);
    return parts;
  }

  nodeOf(path) {
    let node = this.nodes.get(path.id);
    if (!node) {
      node = this.makeBox("path");
      node.group.dataset.path = path.id;
      node.edge = shape("path", { class: "edge" });
      this.edges.append(node.edge);
      const parent = this.nodes.get(path.parent);
      node.at = parent ? { ...parent.at } : null; // a child grows out of its parent
      node.group.addEventListener("pointerenter", () => this.board.highlight(path.id));
      node.group.addEventListener("pointerleave", () => this.board.highlight(null));
      this.nodes.set(path.id, node);
    }
    return node;
  }

  forget() {
    for (const node of this.nodes.values()) {
      node.group.remove();
      node.edge.remove();
    }
    this.nodes.clear();
    this.touched = this.whole = this.aimed = false;
  }

  // The token under the pointer, or null.
  under(event) {
    const group = event.target.closest(".box.path");
    const path = group && this.board.paths.get(Number(group.dataset.path));
    if (!path) return null;
    const node = this.nodes.get(path.id);
    const x = (event.clientX - this.svg.getBoundingClientRect().left - this.camera.x) / this.camera.k - node.at.x;
    const found = node.cells.findIndex((cell) => x < cell[1]);
    return { path, token: found < 0 ? node.cells.length - 1 : found };
  }

  point(event) {
    const found = event.buttons ? null : this.under(event);
    const token = found && found.path.tokens[found.token];
    if (!token) return this.board.tip(null);
    const forks = found.token === 0 && found.path.parent >= 0 ? " ◆" : "";
    this.board.tip(event, `“${token[1]}”  p ${percent(token[2])}  entropy ${token[3].toFixed(2)} nats${forks}${this.board.markAt(found.path.id, found.token) && " ◇ needs a run"}`);
  }

  render() {
    const { layout, aligned } = this.board;
    const shown = new Set();
    this.renderPrompt(layout, aligned);
    for (const path of this.board.shownPaths()) {
      shown.add(path.id);
      this.renderPath(path, this.nodeOf(path));
    }
    for (const [id, node] of this.nodes) {
      const hidden = !shown.has(id);
      node.group.classList.toggle("hidden", hidden);
      node.edge.classList.toggle("hidden", hidden);
    }
    if (aligned) {
      const x = this.board.entropy.x(this.board.cursor);
      set(this.cursor, { x1: x, x2: x, y1: 0, y2: 2000 });
    }
    if (!this.touched) this.aim();
    this.board.wake();
  }

  renderPrompt(layout, aligned) {
    this.promptRight = aligned ? Math.max(20, this.board.entropy.x(-0.5) - 8) : layout.prompt_box;
    const left = aligned ? 2 : 0;
    set(this.prompt.group, { transform: `translate(${left} ${(layout.y[0] ?? 15) * this.squeeze()})`, "aria-label": `Prompt: ${this.board.prompt}` });
    set(this.prompt.frame, { width: this.promptRight - left });
    set(this.prompt.text, { x: aligned ? 4 : 10, y: 4.5 });
    this.prompt.text.textContent = aligned ? "…" : this.board.prompt;
  }

  renderPath(path, node) {
    const { board } = this;
    const status = board.statusAt(path);
    const chosen = board.kinClass(path.id) + (board.finder.paths.has(path.id) ? " found" : "");
    const weight = board.weightAt(path);
    const count = board.tokensShown(path);
    node.target = this.place(path);
    if (!node.at || !board.animates) node.at = { ...node.target };
    node.stub = path.status === "pruned";
    node.group.setAttribute("class", `box path ${status}${chosen}${node.stub ? " stub" : ""}`);
    node.edge.setAttribute("class", `edge${node.stub ? " stub" : ""}${chosen}`);
    node.edge.style.strokeWidth = (1 + 6 * Math.sqrt(weight)).toFixed(2);
    const picked = board.selectedIn(path);
    const signature = [count, status, board.aligned, node.target.width.toFixed(1), path.tokens.length, picked, weight, node.stub, board.folded, board.focused].join();
    if (node.signature === signature) return;
    node.signature = signature;
    this.fillBox(path, node, count, status);
    this.fillStrip(path, node, count, picked);
  }

  fillBox(path, node, count, status) {
    const { aligned } = this.board;
    const whole = path.tokens.slice(0, count).map((token) => token[0]).join("");
    const label = aligned ? { text: clip(whole, node.target.width - 9) } : labelOf(this.board, path, count);
    const left = aligned ? 5 : TEXT_AT - 2;
    node.text.textContent = label.text;
    set(node.text, { x: left, y: node.stub ? 1 : 3 });
    const scale = node.stub ? STUB_TEXT : 1;
    node.width = aligned ? (node.target.width * count) / path.tokens.length : label.width * scale + left + 9;
    node.cells = aligned ? this.bands(path, node, count) : label.cells.map(([from, to]) => [left + from * scale, left + to * scale]);
    const height = node.stub ? STUB : BOX;
    set(node.frame, { width: node.width.toFixed(1), height, y: -height / 2 });
    set(node.mark, { x: node.width + (status === "forked" ? (aligned ? 1 : 3) : 6) });
    set(node.tip, { cx: node.width + 8 });
    node.mark.textContent = { forked: "◆", finished: path.reason === "stop" ? "■" : "…", pruned: "×", live: "" }[status];
    node.share.textContent = path.parent < 0 ? "" : percent(path.share);
    set(node.group, { "aria-label": `path ${path.id}, ${status}, weight ${percent(this.board.weightAt(path))}: ${whole}` });
  }

  bands(path, node, count) {
    const { entropy } = this.board;
    const cell = (index) => [entropy.x(path.born + index - 0.5) - node.target.x, entropy.x(path.born + index + 0.5) - node.target.x];
    return Array.from({ length: count }, (_, index) => cell(index)).map(([from, to]) => [Math.max(2, from), Math.min(node.width - 2, to)]);
  }

  // Under each token its entropy, as a colour beside the threshold.
  fillStrip(path, node, count, picked) {
    const y = (node.stub ? STUB : BOX) / 2 - 5;
    const ticks = [];
    let [begin, hottest, marked] = [null, 0, false];
    node.cells.slice(0, count).forEach(([from, to], index) => {
      begin ??= from;
      hottest = Math.max(hottest, path.tokens[index][3]);
      marked ||= picked === index;
      if (to - begin < 2 && index < count - 1) return; // tokens behind the ellipsis share ticks
      const kind = `tick ${heat(hottest, this.board.threshold)}${marked ? " picked" : ""}`;
      ticks.push(shape("rect", { class: kind, x: begin.toFixed(1), y, height: 3.5, width: Math.max(1, to - begin - 1).toFixed(1), rx: 1 }));
      [begin, hottest, marked] = [null, 0, false];
    });
    node.cells.slice(0, count).forEach(([from, to], index) => {
      const [x, words] = [(from + to) / 2, this.board.markAt(path.id, index)];
      if (words) ticks.push(shape("path", { class: "needs-run", d: diamond(x, -(node.stub ? STUB : BOX) / 2, 4.5) }));
    });
    node.strip.replaceChildren(...ticks);
  }

  focusOn(id) {
    const node = this.nodes.get(id);
    if (node) node.group.focus({ preventScroll: true });
  }

  // ---- movement

  // One frame: boxes, edges and camera together. Returns whether anything still moves.
  tick(ease) {
    let moving = this.tickCamera(ease);
    for (const node of this.nodes.values()) {
      if (!node.target) continue;
      for (const axis of ["x", "y"]) {
        const gap = node.target[axis] - node.at[axis];
        if (Math.abs(gap) > 0.4) moving = true;
        node.at[axis] = Math.abs(gap) > 0.4 ? node.at[axis] + gap * ease : node.target[axis];
      }
    }
    for (const [id, node] of this.nodes) if (node.target) this.put(node, this.nodes.get(this.board.paths.get(id).parent));
    return moving;
  }

  tickCamera(ease) {
    const { x, y, k } = this.goal;
    const [dx, dy, dk] = [x - this.camera.x, y - this.camera.y, k - this.camera.k];
    if (Math.abs(dx) + Math.abs(dy) + 400 * Math.abs(dk) < 0.6) return false;
    this.camera = { x: this.camera.x + dx * ease, y: this.camera.y + dy * ease, k: this.camera.k + dk * ease };
    this.applyCamera();
    return true;
  }

  put(node, parent) {
    const place = [node.at.x.toFixed(1), node.at.y.toFixed(1)];
    const from = parent && parent.at ? [(parent.at.x + parent.width).toFixed(1), parent.at.y.toFixed(1)] : [this.promptRight, (this.board.layout.y[0] ?? 15) * this.squeeze()];
    const drawn = [...place, ...from].join();
    if (node.drawn === drawn) return;
    node.drawn = drawn;
    node.group.setAttribute("transform", `translate(${place[0]} ${place[1]})`);
    const middle = ((Number(from[0]) + node.at.x) / 2).toFixed(1);
    node.edge.setAttribute("d", `M${from[0]} ${from[1]}C${middle} ${from[1]} ${middle} ${place[1]} ${place[0]} ${place[1]}`);
  }
}
