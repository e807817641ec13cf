// The tree: a box per path, an edge from its parent. Boxes are kept and moved, never drawn anew.

import { shape, set, shorten, percent, heat } from "./svg.js";

const BOX = 24;
const LONGEST = 44;
const STEP_WIDTH = 26;
const MARGIN = 14;
const SMALLEST = 0.72;

export class TreeView {
  constructor(board) {
    this.board = board;
    this.svg = shape("svg", { class: "tree", role: "tree", "aria-label": "Tree of generated texts" });
    this.edges = shape("g", { class: "edges" });
    this.boxes = shape("g", { class: "boxes" });
    this.stage = shape("g");
    this.stage.append(this.edges, this.boxes);
    this.svg.append(this.stage);
    this.nodes = new Map();
    this.camera = { x: 0, y: 0, k: 1 };
    this.touched = false; // whether the user moved the camera
    this.prompt = this.makeBox("prompt");
    this.listen();
  }

  listen() {
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => (from = { x: event.clientX, y: event.clientY, moved: false }));
    this.svg.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (Math.abs(dx) + Math.abs(dy) < 3 && !from.moved) return;
      from = { x: event.clientX, y: event.clientY, moved: true };
      this.moveCamera({ x: this.camera.x + dx, y: this.camera.y + dy, k: this.camera.k });
    });
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page keeps its own scrolling
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15);
    }, { passive: false });
  }

  zoom(factor) {
    const k = Math.min(3, Math.max(0.2, this.camera.k * factor));
    const [cx, cy] = [this.svg.clientWidth / 2, this.svg.clientHeight / 2];
    const ratio = k / this.camera.k;
    this.moveCamera({ x: cx - (cx - this.camera.x) * ratio, y: cy - (cy - this.camera.y) * ratio, k });
  }

  moveCamera(camera) {
    this.camera = camera;
    this.touched = true;
    this.applyCamera();
  }

  applyCamera() {
    const { x, y, k } = this.camera;
    this.stage.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${k.toFixed(3)})`);
  }

  // Show everything if that stays readable; else keep the growing end in view.
  fit() {
    this.touched = false;
    const { width, height } = this.extent();
    const room = this.svg.clientWidth - 2 * MARGIN;
    const largest = this.board.presenting ? 1.6 : 1.15;
    const tallest = this.board.presenting ? 900 : 620;
    const k = Math.max(SMALLEST, Math.min(largest, room / width, (tallest - 2 * MARGIN) / height));
    this.svg.style.height = Math.max(150, Math.min(tallest, height * k + 2 * MARGIN)) + "px";
    const overflow = Math.max(0, this.frontier() * k - room);
    const free = this.svg.clientHeight - 2 * MARGIN - height * k;
    this.camera = { x: MARGIN - overflow, y: MARGIN + Math.max(0, free / 2), k };
    this.applyCamera();
  }

  extent() {
    const layout = this.board.layout;
    const width = this.board.aligned ? this.stepX(this.board.lastStep + 1) + 20 : layout.width;
    return { width: Math.max(width, 100), height: Math.max(layout.height, 30) };
  }

  frontier() {
    let right = this.board.layout.prompt_box;
    for (const path of this.board.shownPaths()) right = Math.max(right, this.place(path).x + this.place(path).width);
    return right;
  }

  stepX(step) {
    return this.board.layout.prompt_box + 24 + step * STEP_WIDTH;
  }

  place(path) {
    const layout = this.board.layout;
    const y = layout.y[path.id] ?? 0;
    if (!this.board.aligned) return { x: layout.x[path.id] ?? 0, y, width: layout.box[path.id] ?? 20 };
    return { x: this.stepX(path.born), y, width: Math.max(14, path.tokens.length * STEP_WIDTH - 6) };
  }

  makeBox(kind) {
    const group = shape("g", { class: `box ${kind}`, role: "treeitem" });
    const parts = {
      group,
      frame: shape("rect", { class: "frame", rx: 6, height: BOX, y: -BOX / 2 }),
      accent: shape("rect", { class: "accent", rx: 1.5, width: 4, height: BOX - 8, x: 4, y: 4 - BOX / 2 }),
      text: shape("text", { class: "label", x: 13, y: 3 }),
      strip: shape("g", { class: "strip" }),
      mark: shape("text", { class: "mark", y: 4 }),
      share: shape("text", { class: "share", y: -3, x: -5 }),
      title: shape("title"),
    };
    group.append(parts.frame, parts.accent, parts.text, parts.strip, parts.mark, parts.share, parts.title);
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
      node.group.addEventListener("click", (event) => this.board.select(path.id, this.tokenAt(path, node, event)));
      node.group.addEventListener("pointerenter", () => this.board.highlight(path.id));
      node.group.addEventListener("pointerleave", () => this.board.highlight(null));
      this.nodes.set(path.id, node);
    }
    return node;
  }

  tokenAt(path, node, event) {
    const index = event.target.dataset ? event.target.dataset.token : undefined;
    return index === undefined ? this.board.tokensShown(path) - 1 : Number(index);
  }

  render() {
    set(this.prompt.group, { transform: `translate(0 ${this.board.layout.y[0] ?? 15})` });
    set(this.prompt.frame, { width: this.board.layout.prompt_box });
    set(this.prompt.text, { x: 10 });
    this.prompt.text.textContent = this.board.prompt;
    const shown = new Set();
    for (const path of this.board.shownPaths()) {
      shown.add(path.id);
      this.renderPath(path, this.nodeOf(path));
    }
    for (const [id, node] of this.nodes) {
      const hidden = !shown.has(id);
      node.group.classList.toggle("hidden", hidden);
      node.edge.classList.toggle("hidden", hidden);
    }
    if (!this.touched) this.fit();
  }

  renderPath(path, node) {
    const target = this.place(path);
    node.target = target;
    if (!node.at || !this.board.animates) node.at = { ...target };
    const count = this.board.tokensShown(path);
    const status = this.board.statusAt(path);
    node.group.setAttribute("class", `box path ${status}${this.board.kinClass(path.id)}`);
    node.edge.setAttribute("class", `edge ${status}${this.board.kinClass(path.id)}`);
    node.edge.style.strokeWidth = (1 + 6 * Math.sqrt(path.weight)).toFixed(2);
    const signature = [count, status, this.board.aligned, target.width, path.tokens.length, this.board.selectedIn(path)].join();
    if (node.signature !== signature) {
      node.signature = signature;
      this.fillBox(path, node, target, count, status);
    }
    this.board.wake();
  }

  fillBox(path, node, target, count, status) {
    const tokens = path.tokens.slice(0, count);
    const whole = tokens.map((token) => token[0]).join("");
    const longest = this.board.aligned ? Math.max(1, Math.floor((target.width - 14) / 7.2)) : LONGEST;
    node.text.textContent = shorten(whole, longest);
    set(node.frame, { width: target.width });
    const hottest = Math.max(0, ...tokens.map((token) => token[3]));
    node.accent.setAttribute("class", `accent ${heat(hottest, this.board.threshold)}`);
    const width = (target.width - 18) / Math.max(1, path.tokens.length);
    node.strip.replaceChildren(...tokens.map((token, index) => shape("rect", {
      class: `tick ${heat(token[3], this.board.threshold)}${this.board.selectedIn(path) === index ? " picked" : ""}`,
      x: (13 + index * width).toFixed(2), y: BOX / 2 - 5, height: 3, width: Math.max(0.6, width - 0.8).toFixed(2), "data-token": index,
    })));
    set(node.mark, { x: target.width + 5 });
    node.mark.textContent = { forked: "", finished: path.reason === "stop" ? "■" : "…", pruned: "×", live: "" }[status];
    node.share.textContent = path.parent < 0 ? "" : percent(path.share);
    node.title.textContent = `path ${path.id}: ${whole}\nweight ${percent(path.weight)}, ${count} tokens, highest entropy ${hottest.toFixed(2)} nats`;
    set(node.group, { "aria-label": `path ${path.id}, ${status}, weight ${percent(path.weight)}: ${whole}` });
  }

  // One frame of movement: boxes and edges together. Returns whether anything still moves.
  tick(ease) {
    let moving = false;
    for (const [id, node] of this.nodes) {
      if (!node.target) continue;
      for (const axis of ["x", "y"]) {
        const gap = node.target[axis] - node.at[axis];
        if (Math.abs(gap) > 0.4) moving = true;
        node.at[axis] = Math.abs(gap) > 0.4 ? node.at[axis] + gap * ease : node.target[axis];
      }
      node.group.setAttribute("transform", `translate(${node.at.x.toFixed(1)} ${node.at.y.toFixed(1)})`);
      this.bend(node, this.nodes.get(this.board.paths.get(id).parent));
    }
    return moving;
  }

  bend(node, parent) {
    const from = parent ? { x: parent.at.x + parent.target.width, y: parent.at.y } : { x: this.board.layout.prompt_box, y: this.board.layout.y[0] };
    const [x, y] = [node.at.x, node.at.y];
    const middle = (from.x + x) / 2;
    node.edge.setAttribute("d", `M${from.x.toFixed(1)} ${from.y.toFixed(1)}C${middle.toFixed(1)} ${from.y.toFixed(1)} ${middle.toFixed(1)} ${y.toFixed(1)} ${x.toFixed(1)} ${y.toFixed(1)}`);
  }
}
