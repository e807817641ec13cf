// The board: one run as tree, entropy trace and KV bars, with one cursor (a step) over the three.
// `update(message)` takes what eab/figures/board.py makes; records may come twice. Who brings the messages is not known
// here: streamlit.js, widget.js and page.js do. What a host may set: `resync(version)` asks for the whole run,
// `rested(run, step)` hears where the cursor came to rest.

import { element, textFont } from "./svg.js";
import { savePng, saveSvg } from "./pictures.js";
import { TreeView } from "./tree.js";
import { EntropyView, MemoryView } from "./charts.js";
import { Inspector } from "./inspector.js";
import { button, legend, onKey, transport, KEYS } from "./controls.js";

const STEPS_PER_SECOND = 6;
const GLIDE_STEPS_PER_SECOND = 12;
const REST_MS = 500;

export class Board {
  constructor(host) {
    this.paths = new Map();
    this.steps = new Map();
    this.layout = { x: [], y: [], box: [], prompt_box: 0, width: 0, height: 0 };
    Object.assign(this, { version: -1, cursor: 0, lastStep: 0, maxSteps: 0, threshold: 1, minForkWeight: 0, highestEntropy: 0, highestBytes: 1 });
    Object.assign(this, { prompt: "", ended: "", sentences: {}, mode: "replay", follow: true, playing: false, aligned: false, presenting: false });
    this.selected = { path: null, token: 0 };
    this.hovered = null;
    this.lineage = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.animates = !this.still.matches;
    this.build(host);
  }

  // ---- building

  build(host) {
    this.root = element("div", { class: "eab", tabindex: "0", role: "group", "aria-label": "Run: tree, entropy and KV cache. Press ? for the keys." });
    this.tree = new TreeView(this);
    this.entropy = new EntropyView(this);
    this.memory = new MemoryView(this);
    this.inspector = new Inspector(this);
    this.live = element("p", { class: "for-readers", "aria-live": "polite" });
    this.tipBox = element("div", { class: "tooltip", hidden: "", "aria-hidden": "true" });
    this.help = element("p", { class: "help", hidden: "" }, KEYS);
    const charts = element("div", { class: "charts" });
    charts.append(
      this.panel("Entropy per step", "entropy", this.entropy.svg, legend([["trace-key", "a path"], ["plain", "◆ a fork"]])),
      this.panel("KV cache", "memory", this.memory.svg, legend([["shared-key", "shared"], ["private-key", "private"], ["spare-key", "spare"], ["independent-key", "without sharing"]])),
    );
    this.root.append(
      this.panel("Tree of texts", "tree", this.tree.svg, legend([["e0", "sure"], ["e2", "less sure"], ["e3", "hesitates: at the threshold or above"], ["plain", "◆ fork   ■ ended by itself   … cut at the length limit   × pruned"]])),
      transport(this), this.help, this.inspector.root, charts, this.tipBox, this.live,
    );
    this.root.addEventListener("keydown", (event) => onKey(this, event));
    this.root.addEventListener("fullscreenchange", () => this.present(document.fullscreenElement !== null));
    host.append(this.root);
    this.sizes = new Map();
    const observer = new ResizeObserver((entries) => this.resized(entries));
    for (const { svg } of [this.tree, this.entropy, this.memory]) observer.observe(svg);
  }

  panel(title, name, svg, key) {
    const panel = element("section", { class: `panel ${name}-panel` });
    const head = element("header");
    const sentence = element("p", { class: "sentence" });
    this[`${name}Sentence`] = sentence;
    const save = (kind, action) => button(`↓ ${kind}`, `Download the ${title.toLowerCase()} as ${kind}`, () => action(svg, name, this.wholePicture(name)));
    const saves = element("span", { class: "saves" });
    saves.append(save("SVG", saveSvg), save("PNG", savePng));
    head.append(element("h3", {}, title), key, saves);
    panel.append(head, sentence, svg);
    return panel;
  }

  // The tree's file holds all of it, not only what is in view.
  wholePicture(name) {
    if (name !== "tree" || this.aligned) return null;
    const { width, height } = this.tree.extent();
    return { width: Math.ceil(width) + 28, height: Math.ceil(height) + 28, transform: "translate(14 14)" };
  }

  // ---- taking messages in

  update(message) {
    this.theme();
    if (message.version < this.version && message.run === this.run) return;
    if (message.since > 0 && (message.run !== this.run || message.since > this.lastStep)) return this.resync?.(message.version);
    if (message.run !== this.run) this.forget();
    const first = this.version < 0;
    Object.assign(this, { run: message.run, version: message.version, mode: message.mode, prompt: message.prompt, ended: message.ended, layout: message.layout });
    Object.assign(this, { maxSteps: message.max_steps, threshold: message.threshold ?? 1, minForkWeight: message.min_fork_weight, policy: message.policy, branchFactor: message.branch_factor, sentences: message.sentences });
    const complete = message.paths.every((record) => this.take(record));
    if (!complete) return this.resync?.(message.version);
    for (const step of message.steps) this.takeStep(step);
    if (first && Number.isInteger(message.cursor)) this.goTo(message.cursor);
    else if (first && message.autoplay && this.lastStep > 1 && !this.still.matches) this.play();
    else if (this.follow && !this.playing && !this.glides(first)) this.cursor = this.lastStep;
    if (first) this.restedAt = this.cursor;
    this.announce();
    this.render();
  }

  // A small model is faster than the eye: while a run is live the cursor glides after it instead of jumping.
  glides(first) {
    return this.mode === "live" && this.animates && !(first && this.ended);
  }

  forget() {
    this.version = -1;
    this.paths.clear();
    this.steps.clear();
    this.tree.forget();
    this.root.classList.remove("choosing");
    this.inspector.root.replaceChildren();
    this.selected = { path: null, token: 0 };
    Object.assign(this, { cursor: 0, lastStep: 0, highestEntropy: 0, highestBytes: 1, lineage: null, hovered: null, follow: true, playing: false });
  }

  take(record) {
    const before = this.paths.get(record.id);
    if (before && before.touched > record.touched) return true;
    if (record.from > (before ? before.tokens.length : 0)) return false; // tokens between them were never sent
    const tokens = before ? before.tokens.slice(0, record.from).concat(record.tokens) : record.tokens;
    const born = record.from > 0 ? before.born : record.born;
    this.paths.set(record.id, { ...record, tokens, born, firstChild: before?.firstChild }); // a message may be given twice: copy
    const parent = this.paths.get(record.parent);
    if (parent && (parent.firstChild === undefined || parent.firstChild > record.id)) parent.firstChild = record.id;
    for (const token of record.tokens) this.highestEntropy = Math.max(this.highestEntropy, token[3]);
    return true;
  }

  takeStep(step) {
    this.steps.set(step.step, step);
    this.lastStep = Math.max(this.lastStep, step.step);
    this.highestBytes = Math.max(this.highestBytes, step.independent, step.shared + step.private + step.spare);
  }

  announce() {
    const now = Date.now();
    if (now - (this.announcedAt || 0) < 5000 && !this.ended) return;
    this.announcedAt = now;
    this.live.textContent = this.sentences.tree;
  }

  // ---- what is to be seen at the cursor

  shownPaths() {
    return [...this.paths.values()].filter((path) => path.tokens.length && path.born <= this.cursor);
  }

  tokensShown(path) {
    return Math.max(0, Math.min(path.tokens.length, this.cursor - path.born + 1));
  }

  statusAt(path) {
    if (path.status === "live") return "live";
    const lastStep = path.born + path.tokens.length - 1;
    if (path.status === "forked") return this.cursor > lastStep ? "forked" : "live";
    return this.cursor >= Math.max(lastStep, path.status === "pruned" ? path.touched : 0) ? path.status : "live";
  }

  stepAt(step) {
    return this.steps.get(step) || this.steps.get(this.lastStep);
  }

  onChosenLineage(id) {
    return this.lineage !== null && this.lineage.has(id);
  }

  // What stays bright while a path is chosen: its ancestors, itself, and what grew out of it.
  kin(id) {
    if (this.lineage === null || this.lineage.has(id)) return this.lineage !== null;
    const chosen = this.hovered ?? this.selected.path;
    for (let at = id; at >= 0; at = this.paths.get(at)?.parent ?? -1) if (at === chosen) return true;
    return false;
  }

  kinClass(id) {
    return (this.onChosenLineage(id) ? " chosen" : "") + (this.kin(id) ? " kin" : "");
  }

  selectedIn(path) {
    return this.selected.path === path.id ? this.selected.token : -1;
  }

  // ---- choosing and moving

  select(path, token) {
    this.selected = { path, token: Math.max(0, token) };
    this.highlight(null);
    this.inspector.render();
    this.render();
  }

  highlight(path) {
    this.hovered = path;
    const wanted = path === null ? this.selected.path : path;
    const lineage = wanted === null ? null : new Set();
    for (let id = wanted; id !== null && id >= 0; id = this.paths.get(id)?.parent ?? -1) lineage.add(id);
    const before = this.lineage ? [...this.lineage].join() : "";
    this.lineage = lineage;
    this.root.classList.toggle("choosing", lineage !== null);
    if ((lineage ? [...lineage].join() : "") !== before) this.render();
  }

  goTo(step) {
    this.pause();
    this.cursor = Math.min(this.lastStep, Math.max(0, step));
    this.follow = this.cursor === this.lastStep;
    this.render();
  }

  goToEnd() {
    this.goTo(this.lastStep);
  }

  goToFork(direction) {
    const steps = [...new Set([...this.paths.values()].filter((path) => path.parent >= 0).map((path) => path.born))].sort((a, b) => direction * (a - b));
    this.goTo(steps.find((step) => direction * (step - this.cursor) > 0) ?? this.cursor);
  }

  walk(direction) {
    const shown = this.shownPaths().sort((a, b) => this.layout.y[a.id] - this.layout.y[b.id]);
    if (!shown.length) return;
    const at = shown.findIndex((path) => path.id === this.selected.path);
    const next = shown[Math.min(shown.length - 1, Math.max(0, at + direction))];
    this.select(next.id, this.tokensShown(next) - 1);
    this.tree.focusOn(next.id);
  }

  leave() {
    this.select(null, 0);
    this.root.focus({ preventScroll: true });
  }

  tip(event, words = "") {
    this.tipBox.hidden = event === null;
    if (event === null) return;
    this.tipBox.textContent = words;
    const box = this.root.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 12, box.width - this.tipBox.offsetWidth - 4);
    this.tipBox.style.transform = `translate(${left.toFixed(0)}px, ${(event.clientY - box.top + 18).toFixed(0)}px)`;
  }

  play() {
    if (this.cursor >= this.lastStep) this.cursor = 0;
    Object.assign(this, { playing: true, follow: false, playedAt: performance.now() });
    this.wake();
  }

  pause() {
    this.playing = false;
  }

  togglePlay() {
    if (this.playing) this.pause();
    else this.play();
    this.render();
  }

  toggleAligned() {
    this.aligned = !this.aligned;
    this.alignButton.setAttribute("aria-pressed", this.aligned);
    this.root.classList.toggle("aligned", this.aligned);
    this.tree.touched = this.tree.aimed = false;
    this.render();
  }

  // Full screen where the browser allows it; larger text in any case.
  togglePresenting() {
    const wanted = !this.presenting;
    this.present(wanted);
    if (wanted) this.root.requestFullscreen?.().catch(() => {});
    else if (document.fullscreenElement) document.exitFullscreen();
  }

  present(wanted) {
    if (wanted === this.presenting) return;
    this.presenting = wanted;
    this.presentButton.setAttribute("aria-pressed", wanted);
    this.root.classList.toggle("presenting", wanted);
    this.tree.touched = false;
    this.render();
  }

  toggleHelp() {
    this.help.hidden = !this.help.hidden;
  }

  fit() {
    this.tree.whole = this.tree.touched || !this.tree.whole;
    this.tree.touched = false;
    this.render();
  }

  // ---- drawing

  render() {
    this.animates = !this.still.matches;
    this.tree.render();
    this.entropy.render();
    this.memory.render();
    if (this.inspector.root.childElementCount === 0 || this.selected.path !== null) this.inspector.render();
    for (const name of ["tree", "entropy", "memory"]) this[`${name}Sentence`].textContent = this.sentences[name] || "";
    Object.assign(this.slider, { max: this.lastStep, value: this.cursor });
    this.stepLabel.textContent = `${this.cursor} / ${this.lastStep}`;
    this.playButton.textContent = this.playing ? "⏸" : "▶";
    this.playButton.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    this.fitButton.setAttribute("aria-pressed", this.tree.whole && !this.tree.touched);
    this.root.dataset.cursor = this.cursor;
    this.root.dataset.paths = this.shownPaths().length;
    this.root.dataset.playing = this.playing;
    this.rest();
    this.wake();
  }

  // Not while the cursor moves by itself: the host only hears where it came to rest.
  rest() {
    clearTimeout(this.resting);
    const moving = this.playing || (this.follow && !this.ended && this.mode === "live");
    if (moving || this.cursor === this.restedAt) return;
    this.resting = setTimeout(() => this.rested?.(this.run, (this.restedAt = this.cursor)), REST_MS);
  }

  theme() {
    const style = getComputedStyle(this.root);
    textFont(style.fontFamily);
    const [red, green, blue] = style.color.match(/[\d.]+/g) || [0, 0, 0];
    this.root.classList.toggle("dark", Number(red) + Number(green) + Number(blue) > 384);
  }

  retheme() {
    if (this.version < 0) return;
    this.theme();
    this.render();
  }

  // Sizes are noted when they change: to ask for them while drawing would lay the page out each time.
  sizeOf(svg) {
    if (!this.sizes.has(svg)) this.sizes.set(svg, { width: svg.clientWidth || 600, height: svg.clientHeight || 220 });
    return this.sizes.get(svg);
  }

  resized(entries) {
    let redraw = false;
    for (const { target, contentRect: { width, height } } of entries) {
      const before = this.sizeOf(target);
      redraw ||= width !== before.width || (target !== this.tree.svg && height !== before.height);
      if (width) this.sizes.set(target, { width, height });
    }
    if (redraw) this.retheme();
  }

  wake() {
    if (!this.frame) this.frame = requestAnimationFrame((now) => this.onFrame(now));
  }

  onFrame(now) {
    this.frame = 0;
    const moving = this.tree.tick(this.animates ? 0.28 : 1);
    if (this.playing) this.advance(now);
    else if (this.follow && this.cursor < this.lastStep) this.glide(now);
    if (moving || this.playing || (this.follow && this.cursor < this.lastStep)) this.wake();
  }

  glide(now) {
    const speed = Math.max(GLIDE_STEPS_PER_SECOND, 2 * (this.lastStep - this.cursor));
    const due = Math.min(0.2, (now - (this.glidedAt ?? now)) / 1000) * speed;
    this.glidedAt ??= now;
    if (due < 1) return;
    this.glidedAt = now;
    this.cursor = Math.min(this.lastStep, this.cursor + Math.floor(due));
    this.render();
  }

  advance(now) {
    const due = (now - this.playedAt) / 1000 * STEPS_PER_SECOND * Number(this.speed.value);
    if (due < 1) return;
    this.playedAt = now;
    this.cursor = Math.min(this.lastStep, this.cursor + Math.max(1, Math.floor(due)));
    if (this.cursor === this.lastStep) {
      this.playing = false;
      this.follow = true;
    }
    this.render();
  }
}
