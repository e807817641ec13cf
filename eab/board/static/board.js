// The board: one run as tree, entropy trace and KV bars, with one cursor (a step) over the three.
// `update(message)` takes what eab/board/messages.py makes; records may come twice. Who brings the messages is not known
// here: streamlit.js, widget.js and page.js do. What a host may set: `resync(version)` asks for the whole run,
// `rested(run, step)` hears where the cursor came to rest, `grow(place)` makes a new run from a token, and
// `reread(threshold)` reads the run again at another threshold.

import { element, textFont } from "./svg.js";
import { arrange } from "./arrange.js";
import { TreeView } from "./tree.js";
import { EntropyView, MemoryView } from "./charts.js";
import { Inspector } from "./inspector.js";
import { Finder } from "./finder.js";
import { TableView } from "./table.js";
import { Records } from "./records.js";
import { Replay } from "./replay.js";
import { keyList, onKey, panel, showState, tools, transport } from "./controls.js";

const SILENCE_MS = 8000; // a live run that says nothing for so long: its step is slow, or the connection is gone
const MANY = 120; // paths: from then on stretches are folded, unless the user chose otherwise
const NOTHING = { tree: "", entropy: "", memory: "" };

export class Board {
  constructor(host) {
    this.records = new Records();
    this.layout = this.told = { x: [], y: [], box: [], prompt_box: 0, width: 0, height: 0 };
    Object.assign(this, { version: -1, maxSteps: 0, threshold: 1, minForkWeight: 0, rowBytes: 0, cache: "" });
    Object.assign(this, { prompt: "", ended: "", mode: "replay", aligned: false, presenting: false, folded: false, focused: null });
    this.selected = { path: null, token: 0 };
    this.hovered = null;
    this.lineage = null;
    this.again = "";
    this.marks = new Map();
    this.sides = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.animates = !this.still.matches;
    this.replay = new Replay(this);
    this.build(host);
  }

  get cursor() {
    return this.replay.cursor;
  }

  get lastStep() {
    return this.records.lastStep;
  }

  get paths() {
    return this.records.paths;
  }

  // ---- building

  build(host) {
    this.root = element("div", { class: "eab", tabindex: "0", role: "group", "aria-label": "Run: tree, entropy and KV cache. Press ? for the keys." });
    this.tree = new TreeView(this);
    this.entropy = new EntropyView(this);
    this.memory = new MemoryView(this);
    this.inspector = new Inspector(this);
    this.finder = new Finder(this);
    this.table = new TableView(this);
    this.live = element("p", { class: "for-readers", "aria-live": "polite" });
    this.news = element("p", { class: "news", role: "status", hidden: "" });
    this.tipBox = element("div", { class: "tooltip", hidden: "", "aria-hidden": "true" });
    this.help = keyList();
    const charts = element("div", { class: "charts" });
    charts.append(
      panel(this, "Entropy per step", "entropy"),
      panel(this, "KV cache", "memory"),
    );
    const tree = panel(this, "Tree of texts", "tree");
    tree.insertBefore(tools(this), this.tree.svg);
    tree.insertBefore(this.finder.root, this.tree.svg);
    this.root.append(tree, transport(this), this.news, this.help, this.inspector.root, charts, this.table.root, this.tipBox, this.live);
    this.root.addEventListener("keydown", (event) => onKey(this, event));
    this.root.addEventListener("fullscreenchange", () => document.fullscreenElement || this.present(false));
    host.append(this.root);
    this.sizes = new Map();
    this.observer = new ResizeObserver((entries) => this.resized(entries));
    for (const { svg } of [this.tree, this.entropy, this.memory]) this.observer.observe(svg);
  }

  // Nothing runs on; the host makes a new board if it needs one again.
  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    for (const timer of [this.silence, this.replay.resting, this.entropy.wish, this.table.waiting]) clearTimeout(timer);
    this.root.remove();
  }

  // ---- taking messages in

  update(message) {
    this.theme();
    if (message.run === this.run && (message.again ?? "") !== this.again) this.readAgain();
    if (message.version < this.version && message.run === this.run) return;
    if (message.since > 0 && (message.run !== this.run || message.since > this.lastStep)) return this.resync?.(message.version);
    const fresh = message.run !== this.run;
    if (fresh) this.forget();
    Object.assign(this, { run: message.run, version: message.version, mode: message.mode, prompt: message.prompt, ended: message.ended, told: message.layout, sentences: message.sentences });
    Object.assign(this, { maxSteps: message.max_steps, threshold: message.threshold ?? 1, minForkWeight: message.min_fork_weight, policy: message.policy, branchFactor: message.branch_factor, cache: message.cache, rowBytes: message.row_bytes });
    this.remark(message);
    if (fresh && this.sides && !this.aligned) this.toggleAligned(); // both trees whole, above their entropies
    const complete = message.paths.every((record) => this.records.take(record));
    if (!complete) return this.resync?.(message.version);
    for (const step of message.steps) this.records.takeStep(step);
    if (!this.choseFold && this.paths.size > MANY) this.folded = true;
    this.arrange();
    this.replay.arrived(fresh, message);
    this.announce();
    this.listen();
    this.render();
  }

  // What is told of a run that was read again, or of two runs in one tree.
  remark({ again, marks, sides }) {
    this.again = again ?? "";
    this.marks = new Map((marks ?? []).map(([path, token, words]) => [`${path}.${token}`, words]));
    this.sides = sides ?? null;
    this.root.classList.toggle("marked", this.marks.size > 0);
    this.root.classList.toggle("contrast", this.sides !== null);
  }

  // Words on what only a run with the model could tell about this token.
  markAt(path, token) {
    return this.marks.get(`${path}.${token}`) ?? "";
  }

  // The same run at another threshold or r: other paths, the same scales and the same place in time.
  readAgain() {
    const { cursor, follow } = this.replay;
    const { highestEntropy, highestBytes } = this.records;
    this.forget();
    Object.assign(this.replay, { cursor, follow });
    Object.assign(this.records, { highestEntropy, highestBytes });
  }

  forget() {
    this.version = -1;
    this.records.forget();
    this.tree.forget();
    this.finder.forget();
    this.replay.forget();
    this.root.classList.remove("choosing");
    this.selected = { path: null, token: 0 };
    Object.assign(this, { lineage: null, hovered: null, focused: null });
  }

  announce() {
    const now = Date.now();
    if (now - (this.announcedAt || 0) < 5000 && !this.ended) return;
    this.announcedAt = now;
    this.live.textContent = this.sentences.tree;
  }

  // A live run that falls silent says so; what has come stays usable.
  listen() {
    clearTimeout(this.silence);
    this.news.hidden = true;
    if (this.mode !== "live" || this.ended) return;
    this.silence = setTimeout(() => {
      this.news.textContent = `No news for ${SILENCE_MS / 1000} seconds: the step is slow, or the connection is gone. What has come can be replayed meanwhile.`;
      this.news.hidden = false;
    }, SILENCE_MS);
  }

  // ---- what is to be seen at the cursor

  shownPaths() {
    return [...this.paths.values()].filter((path) => path.tokens.length && path.born <= this.cursor && this.keeps(path.id));
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

  weightAt(path) {
    return path.weights.findLast(([step]) => step <= this.cursor)?.[1] ?? path.weights[0][1];
  }

  stepAt(step) {
    return this.records.steps.get(step) || this.records.steps.get(this.lastStep);
  }

  sentencesNow() {
    return this.stepAt(this.cursor)?.sentences ?? this.sentences ?? NOTHING;
  }

  keeps(id) {
    return this.focused === null || this.records.related(id, this.focused);
  }

  // What stays bright while a path is chosen: its ancestors, itself, and what grew out of it.
  kinClass(id) {
    const side = this.sides ? ` side-${this.sides[id]}` : "";
    if (this.lineage === null) return side;
    const chosen = this.hovered ?? this.selected.path;
    return side + (this.lineage.has(id) ? " chosen" : "") + (this.lineage.has(id) || this.records.lineageOf(id).has(chosen) ? " kin" : "");
  }

  selectedIn(path) {
    return this.selected.path === path.id ? this.selected.token : -1;
  }

  // ---- choosing and moving

  select(path, token) {
    this.selected = { path, token: Math.max(0, token) };
    this.highlight(null);
    this.render();
  }

  highlight(path) {
    this.hovered = path;
    const wanted = path === null ? this.selected.path : path;
    const before = this.lineage ? [...this.lineage].join() : "";
    this.lineage = wanted === null ? null : this.records.lineageOf(wanted);
    this.root.classList.toggle("choosing", this.lineage !== null);
    if ((this.lineage ? [...this.lineage].join() : "") !== before) this.render();
  }

  // The user moved the cursor: the chosen token goes with it along its line.
  moved() {
    if (this.selected.path === null) return this.render();
    const { path, token } = this.records.onLine(this.selected.path, this.cursor);
    this.select(path, token);
  }

  // Show this token, whatever hides it now.
  reveal({ path, token }) {
    const step = this.paths.get(path).born + token;
    if (!this.keeps(path)) this.focus(null);
    if (step > this.cursor) this.replay.goTo(step);
    this.tree.touched = false;
    this.select(path, token);
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
    if (!this.help.hidden) return this.toggleHelp();
    if (this.focused !== null) return this.focus(null);
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

  // ---- ways to look at it

  toggleAligned() {
    this.aligned = !this.aligned;
    this.root.classList.toggle("aligned", this.aligned);
    this.tree.touched = this.tree.aimed = false;
    this.render();
  }

  toggleFolded() {
    this.folded = !this.folded;
    this.choseFold = true;
    this.rearrange();
  }

  toggleFocus() {
    this.focus(this.focused === null ? this.selected.path : null);
  }

  focus(path) {
    this.focused = path;
    this.rearrange();
  }

  arrange() {
    this.layout = arrange(this, this.told);
  }

  rearrange() {
    this.arrange();
    this.tree.touched = false;
    this.render();
  }

  toggleTable() {
    this.table.toggle();
    this.render();
  }

  toggleFullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.root.requestFullscreen?.().catch(() => {});
  }

  // Full screen where the browser allows it; larger text in any case.
  togglePresenting() {
    this.present(!this.presenting);
    if (this.presenting !== Boolean(document.fullscreenElement)) this.toggleFullScreen();
  }

  present(wanted) {
    this.presenting = wanted;
    this.root.classList.toggle("presenting", wanted);
    this.tree.touched = false;
    this.render();
  }

  toggleHelp() {
    this.help.hidden = !this.help.hidden;
    this.render();
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
    this.inspector.render();
    this.table.render();
    const sentences = this.sentencesNow();
    for (const name of ["tree", "entropy", "memory"]) this[`${name}Sentence`].textContent = sentences[name];
    showState(this);
    Object.assign(this.root.dataset, { cursor: this.cursor, paths: this.shownPaths().length, playing: this.replay.playing });
    this.replay.rest();
    this.wake();
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
    const gliding = this.tree.tick(this.animates ? 0.28 : 1);
    if (this.replay.tick(now) || gliding) this.wake();
  }
}
