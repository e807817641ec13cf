// Entropy against step, and KV bytes per path at the cursor. Drawn anew on each change: they are small.

import { shape, set, bytes, diamond, ticks } from "./svg.js";

const LEFT = 52;
const RIGHT = 20;
const TOP = 12;
const BOTTOM = 34;
const GRIP = 7; // pixels on either side of the threshold's line
const REREAD_MS = 120; // between two wishes, while the line is dragged

function frame(board, svg) {
  const { width, height } = board.sizeOf(svg);
  return { width, height, innerWidth: Math.max(10, width - LEFT - RIGHT), innerHeight: height - TOP - BOTTOM };
}

function axisTitle(text, attributes) {
  return shape("text", { class: "axis-title", ...attributes }, text);
}

export class EntropyView {
  constructor(board) {
    this.board = board;
    this.svg = shape("svg", { class: "chart entropy", role: "img" });
    this.scrubs = false;
    this.dragged = null; // the threshold's line while it is dragged: { threshold, asked, highest, top }
    // Else a finger on the line scrolls the page: Chromium does not heed the touch-action of a shape inside a picture.
    const stays = (event) => event.cancelable && event.touches.length === 1 && event.target.classList.contains("grip");
    this.svg.addEventListener("touchstart", (event) => stays(event) && event.preventDefault(), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => event.button || this.pressed(event));
    this.svg.addEventListener("pointermove", (event) => this.moved(event));
    for (const end of ["pointerup", "pointercancel"]) this.svg.addEventListener(end, (event) => this.letGo(event));
  }

  pressed(event) {
    this.svg.setPointerCapture(event.pointerId);
    this.scrubs = !event.target.classList.contains("grip");
    if (this.scrubs) this.scrub(event);
    else this.grasp();
  }

  moved(event) {
    if (!event.buttons) this.letGo(event);
    else if (this.dragged) this.drag(event);
    else if (this.scrubs) this.scrub(event);
  }

  // ---- the threshold's line, dragged over a run that can be read again

  // What the page says above the board may move it meanwhile: the line follows the pointer's own way.
  grasp() {
    this.dragged = { threshold: this.board.threshold, asked: null, highest: this.highest(), top: this.svg.getBoundingClientRect().top };
  }

  drag(event) {
    const { innerHeight } = frame(this.board, this.svg);
    const share = 1 - (event.clientY - this.dragged.top - TOP) / innerHeight;
    this.dragged.threshold = Math.round(100 * this.dragged.highest * Math.min(1, Math.max(0, share))) / 100;
    this.wish ??= setTimeout(() => this.reread(), REREAD_MS);
    this.render();
  }

  reread() {
    clearTimeout(this.wish);
    this.wish = null;
    if (!this.dragged || this.dragged.asked === this.dragged.threshold) return;
    this.dragged.asked = this.dragged.threshold;
    this.board.reread?.(this.dragged.asked);
  }

  letGo(event) {
    const clicked = this.dragged?.asked === null && this.dragged.threshold === this.board.threshold;
    if (!clicked) this.reread();
    else if (event.type === "pointerup") this.scrub(event);
    this.dragged = null;
    this.scrubs = false;
  }

  // The scale stays while the line is dragged.
  highest() {
    if (this.dragged) return this.dragged.highest;
    return Math.max(this.board.threshold * 1.4, this.board.records.highestEntropy, 0.1) * 1.06;
  }

  scrub(event) {
    const { innerWidth } = frame(this.board, this.svg);
    const share = (event.clientX - this.svg.getBoundingClientRect().left - LEFT) / innerWidth;
    this.board.replay.goTo(Math.round(share * (this.steps() + 1) - 0.5));
  }

  steps() {
    return Math.max(1, this.board.ended ? this.board.lastStep : Math.max(this.board.lastStep, this.board.maxSteps - 1));
  }

  // The middle of a step's band; the tree by step uses it too.
  x(step) {
    const { innerWidth } = frame(this.board, this.svg);
    return LEFT + ((step + 0.5) / (this.steps() + 1)) * innerWidth;
  }

  render() {
    const board = this.board;
    const { width, height, innerWidth, innerHeight } = frame(this.board, this.svg);
    const band = innerWidth / (this.steps() + 1);
    const highest = this.highest();
    const threshold = this.dragged?.threshold ?? board.threshold;
    const x = (step) => LEFT + (step + 0.5) * band;
    const y = (entropy) => TOP + innerHeight * (1 - entropy / highest);
    const parts = [];
    for (const value of ticks(highest)) {
      parts.push(shape("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
      parts.push(shape("text", { class: "tick-label end", x: LEFT - 6, y: y(value) + 4 }, String(value)));
    }
    for (const step of ticks(this.steps(), Math.max(2, innerWidth / 90)).filter(Number.isInteger)) {
      parts.push(shape("text", { class: "tick-label middle", x: x(step), y: height - BOTTOM + 15 }, String(step)));
    }
    parts.push(axisTitle("step (token of the path)", { x: LEFT + innerWidth / 2, y: height - 4, class: "axis-title middle" }));
    parts.push(axisTitle("entropy (nats)", { class: "axis-title middle", transform: `translate(12 ${TOP + innerHeight / 2}) rotate(-90)` }));
    parts.push(...this.lines(x, y), ...this.forks(x, y));
    parts.push(shape("line", { class: "threshold", x1: LEFT, x2: width - RIGHT, y1: y(threshold), y2: y(threshold) }));
    if (board.reread) parts.push(shape("rect", { class: "grip", x: LEFT, y: y(threshold) - GRIP, width: innerWidth, height: 2 * GRIP }));
    parts.push(shape("text", { class: "threshold-label end", x: width - RIGHT - 2, y: y(threshold) - 5 }, `forks from ${threshold.toFixed(2)} nats${board.reread ? " ↕" : ""}`));
    parts.push(shape("line", { class: "cursor", x1: x(board.cursor), x2: x(board.cursor), y1: TOP, y2: TOP + innerHeight }));
    this.svg.replaceChildren(...parts);
    set(this.svg, { "aria-label": board.sentencesNow().entropy || "Entropy per step" });
  }

  lines(x, y) {
    const found = [];
    for (const path of this.board.shownPaths()) {
      const count = this.board.tokensShown(path);
      if (!count) continue;
      const parent = this.board.paths.get(path.parent);
      const last = parent && parent.tokens.length ? [[path.born - 1, parent.tokens[parent.tokens.length - 1][3]]] : [];
      const points = [...last, ...path.tokens.slice(0, count).map((token, index) => [path.born + index, token[3]])];
      const chosen = this.board.kinClass(path.id);
      const line = points.map(([step, entropy]) => `${x(step).toFixed(1)},${y(entropy).toFixed(1)}`).join(" ");
      const seen = (0.3 + 0.7 * Math.sqrt(this.board.weightAt(path))).toFixed(2);
      found.push(shape("polyline", { class: `trace ${this.board.statusAt(path)}${chosen}`, points: line, "stroke-opacity": seen }));
      if (points.length === 1) found.push(shape("circle", { class: `trace-dot${chosen}`, cx: x(points[0][0]), cy: y(points[0][1]), r: 2 }));
    }
    return found;
  }

  forks(x, y) {
    const found = [];
    for (const path of this.board.shownPaths()) {
      path.tokens.slice(0, this.board.tokensShown(path)).forEach((token, index) => {
        if (this.board.markAt(path.id, index)) found.push(shape("path", { class: "needs-run", d: diamond(x(path.born + index), y(token[3]), 5) }));
      });
      if (path.parent < 0 || this.board.paths.get(path.parent).firstChild !== path.id) continue;
      found.push(shape("path", { class: "fork", d: diamond(x(path.born), y(path.tokens[0][3]), 5) }));
    }
    return found;
  }
}

export class MemoryView {
  constructor(board) {
    this.board = board;
    this.svg = shape("svg", { class: "chart memory", role: "img" });
  }

  render() {
    const { width, height, innerWidth, innerHeight } = frame(this.board, this.svg);
    const step = this.board.stepAt(this.board.cursor);
    const parts = [this.hatch()];
    if (step) {
      const totalWidth = Math.min(150, innerWidth * 0.36);
      parts.push(...this.totals(step, LEFT, totalWidth, innerHeight, height));
      parts.push(...this.paths(step, LEFT + totalWidth + 56, width - RIGHT, innerHeight, height));
    }
    this.svg.replaceChildren(...parts);
    set(this.svg, { "aria-label": this.board.sentencesNow().memory || "KV cache" });
  }

  hatch() {
    const definitions = shape("defs");
    const pattern = shape("pattern", { id: "eab-hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    pattern.append(shape("rect", { class: "private-ground", width: 5, height: 5 }), shape("rect", { class: "private-line", width: 2, height: 5 }));
    definitions.append(pattern);
    return definitions;
  }

  // One bar: shared, private and spare on top of each other.
  stack(x, width, parts, scale, bottom, chosen = "") {
    let y = bottom;
    return ["shared", "private", "spare"].map((kind, index) => {
      const tall = parts[index] * scale;
      y -= tall;
      return shape("rect", { class: `${kind}${chosen}`, x, y: y.toFixed(1), width, height: Math.max(0, tall).toFixed(1) });
    });
  }

  axis(highest, scale, x, bottom, right) {
    const found = [];
    const unit = highest >= 2 ** 20 ? 2 ** 20 : 2 ** 10;
    for (const value of ticks(highest / unit, 3).map((count) => count * unit)) {
      found.push(shape("line", { class: "grid", x1: x, x2: right, y1: bottom - value * scale, y2: bottom - value * scale }));
      found.push(shape("text", { class: "tick-label end", x: x - 4, y: bottom - value * scale + 4 }, bytes(value)));
    }
    return found;
  }

  totals(step, x, width, innerHeight, height) {
    const bottom = TOP + innerHeight;
    const highest = this.board.records.highestBytes * 1.05;
    const scale = innerHeight / highest;
    const bar = width / 2 - 8;
    const parts = this.axis(highest, scale, x, bottom, x + width);
    parts.push(...this.stack(x + 4, bar, [step.shared, step.private, step.spare], scale, bottom));
    const tall = step.independent * scale;
    parts.push(shape("rect", { class: "independent", x: x + bar + 12, y: bottom - tall, width: bar, height: tall }));
    parts.push(shape("text", { class: "tick-label middle", x: x + 4 + bar / 2, y: bottom + 15 }, "held"));
    parts.push(shape("text", { class: "tick-label middle", x: x + bar * 1.5 + 12, y: bottom + 15 }, "copies"));
    parts.push(axisTitle("all paths", { class: "axis-title middle", x: x + width / 2, y: height - 4 }));
    return parts;
  }

  paths(step, x, right, innerHeight, height) {
    const bottom = TOP + innerHeight;
    const spare = step.spare / Math.max(1, step.paths.length);
    const most = Math.max(0, ...step.paths.map(([, shared, own]) => shared + own + spare));
    const highest = (most || 2 ** 10) * 1.08; // without a cache there is nothing to scale by
    const scale = innerHeight / highest;
    const slot = (right - x) / Math.max(1, step.paths.length);
    const bar = Math.max(2, Math.min(34, slot - 3));
    const parts = this.axis(highest, scale, x, bottom, right);
    const rows = this.board.told.y;
    const inTreeOrder = [...step.paths].sort((a, b) => rows[a[0]] - rows[b[0]]);
    inTreeOrder.forEach(([path, shared, own], index) => {
      const chosen = this.board.kinClass(path);
      const group = shape("g", { class: "path-bar" });
      group.append(shape("title", {}, `path ${path}: shared ${bytes(shared)}, private ${bytes(own)}, an equal part of the spare rows ${bytes(spare)}`));
      group.append(...this.stack(x + index * slot + (slot - bar) / 2, bar, [shared, own, spare], scale, bottom, chosen));
      group.addEventListener("pointerenter", () => this.board.highlight(path));
      group.addEventListener("pointerleave", () => this.board.highlight(null));
      group.addEventListener("click", () => this.board.select(path, this.board.tokensShown(this.board.paths.get(path)) - 1));
      parts.push(group);
      if (slot >= 16) parts.push(shape("text", { class: "tick-label middle", x: x + (index + 0.5) * slot, y: bottom + 15 }, String(path)));
    });
    parts.push(axisTitle(`each live path at step ${step.step}`, { class: "axis-title middle", x: (x + right) / 2, y: height - 4 }));
    return parts;
  }
}
