// The board: one run as tree, entropy chart and KV chart, with one cursor (a step) over the three.
//
// `update(message)` takes what eab/board/messages.py sends; messages may come twice. The board does
// not know who brings them: streamlit.js, widget.js and page.js do.

/** @import { Layout, Message, Path, RunInfo, Sentences, Side } from "./types.d.ts" */
/** @import { TokenAddress, TokenPlace, View } from "./types.d.ts" */
import { element } from "./elements.js";
import { EntropyChart } from "./entropy_chart.js";
import { Finder } from "./finder.js";
import { Highlight } from "./highlight.js";
import { Inspector } from "./inspector.js";
import { keyList, onKey } from "./keys.js";
import { arrange, EMPTY_LAYOUT } from "./layout.js";
import { MemoryChart } from "./memory_chart.js";
import { Panel } from "./panel.js";
import { tokenCountAt } from "./path_state.js";
import { Presentation } from "./presentation.js";
import { decodeRun, NO_RUN, Records } from "./records.js";
import { Replay } from "./replay.js";
import { SilenceNotice } from "./silence.js";
import { Sizes } from "./sizes.js";
import { TableView } from "./table.js";
import { setTextFont } from "./text.js";
import { Toolbar } from "./toolbar.js";
import { Tooltip } from "./tooltip.js";
import { Transport } from "./transport.js";
import { TreeView } from "./tree.js";

const MANY_PATHS = 120; // from then on texts are folded, unless the user chose otherwise
const ANNOUNCE_MS = 5000; // between two announcements to screen readers
const EASE = 0.28; // the part of its way that a box goes in a frame

export class Board {
  // What a host may set.

  /** Records are missing: send the whole run. @type {((version: number) => void) | null} */
  onKeyframeNeeded = null;
  /** The cursor rests at this step. @type {((run: string, step: number) => void) | null} */
  onCursorRest = null;
  /** The user wants a new run from this token. @type {((address: TokenAddress) => void) | null} */
  onGrow = null;
  /** What if the run had had this threshold? @type {((threshold: number) => void) | null} */
  onWhatIf = null;

  // The run.

  records = new Records();
  /** @type {RunInfo} */
  run = NO_RUN;
  version = -1;
  /** The settings that a finished run is shown with instead of its own; "" as recorded. */
  whatIf = "";
  /** What only a run of the model could tell, by path and token. @type {Map<string, string>} */
  unknowns = new Map();
  /** Of two runs in one tree: whose each path is. @type {Side[] | null} */
  sides = null;
  /** The layout of all paths, and of those in view. @type {Layout} */
  wholeLayout = EMPTY_LAYOUT;
  /** @type {Layout} */
  layout = EMPTY_LAYOUT;

  // What the user looks at.

  /** @type {{ path: number | null, token: number }} */
  selected = { path: null, token: 0 };
  /** The path that is shown with its relatives only. @type {number | null} */
  focused = null;
  folded = false;
  foldChosen = false; // whether the user chose it
  aligned = false; // the tree lies by step, like the entropy chart

  reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  animates = !this.reducedMotion.matches;
  frame = 0;
  announcedAt = 0;

  /** @param {HTMLElement | ShadowRoot} host */
  constructor(host) {
    const label = "Run: tree, entropy and KV cache. Press ? for the keys.";
    this.root = element("div", { class: "eab", tabindex: "0", role: "group", "aria-label": label });
    this.sizes = new Sizes(
      (picture, before, now) =>
        now.width !== before.width || (picture !== this.tree.svg && now.height !== before.height),
      () => this.redraw(),
    );
    this.tooltip = new Tooltip(this.root);
    this.replay = new Replay(this);
    this.highlight = new Highlight(this);
    this.presentation = new Presentation(this);
    this.tree = new TreeView(this);
    this.entropy = new EntropyChart(this);
    this.memory = new MemoryChart(this);
    this.inspector = new Inspector(this);
    this.finder = new Finder(this);
    this.table = new TableView(this);
    this.silence = new SilenceNotice();
    this.keyList = keyList();
    this.announcement = element("p", { class: "visually-hidden", "aria-live": "polite" });
    /** @type {View[]} */
    this.views = [this.tree, this.entropy, this.memory, this.inspector, this.table];
    this.build();
    this.root.addEventListener("keydown", (event) => onKey(this, event));
    host.append(this.root);
    for (const { svg } of [this.tree, this.entropy, this.memory]) this.sizes.observe(svg);
  }

  build() {
    const toolbar = new Toolbar(this);
    const transport = new Transport(this);
    const tree = new Panel(this, "tree", "Tree of texts", this.tree);
    const entropy = new Panel(this, "entropy", "Entropy per step", this.entropy);
    const memory = new Panel(this, "memory", "KV cache", this.memory);
    tree.addControls(toolbar.root, this.finder.root);
    const charts = element("div", { class: "charts" });
    charts.append(entropy.root, memory.root);
    this.views.push(toolbar, transport, tree, entropy, memory);
    this.root.append(
      tree.root,
      transport.root,
      this.silence.root,
      this.keyList,
      this.inspector.root,
      charts,
      this.table.root,
      this.tooltip.root,
      this.announcement,
    );
  }

  /** Nothing runs on; the host makes a new board if it needs one again. */
  close() {
    cancelAnimationFrame(this.frame);
    for (const part of [this.sizes, this.silence, this.replay, this.entropy, this.table]) {
      part.close();
    }
    this.root.remove();
  }

  // ---- messages

  /** @param {Message} message */
  update(message) {
    this.applyTheme();
    const isNewRun = message.run !== this.run.key;
    if (!isNewRun && (message.what_if ?? "") !== this.whatIf) this.clearForWhatIf();
    if (!isNewRun && message.version < this.version) return;
    const isGap = message.since_step > 0 && (isNewRun || message.since_step > this.lastStep);
    if (isGap) return this.onKeyframeNeeded?.(message.version);
    if (isNewRun) this.clear();
    this.takeRun(message, isNewRun);
    const complete = message.paths.every((path) => this.records.addPath(path));
    if (!complete) return this.onKeyframeNeeded?.(message.version);
    for (const step of message.steps) this.records.addStep(step);
    if (!this.foldChosen && this.paths.size > MANY_PATHS) this.folded = true;
    this.arrange();
    this.replay.onMessage(isNewRun, message);
    this.announce();
    this.silence.onMessage(this.run.mode === "live" && !this.run.ended);
    this.render();
  }

  /**
   * What a message says besides paths and steps.
   * @param {Message} message
   * @param {boolean} isNewRun
   */
  takeRun(message, isNewRun) {
    this.run = decodeRun(message);
    this.version = message.version;
    this.wholeLayout = message.layout;
    this.whatIf = message.what_if ?? "";
    const unknowns = message.unknowns ?? [];
    this.unknowns = new Map(unknowns.map(([path, token, words]) => [`${path}.${token}`, words]));
    this.sides = message.sides ?? null;
    this.root.classList.toggle("has-unknowns", this.unknowns.size > 0);
    this.root.classList.toggle("diff", this.sides !== null);
    // By step, both trees are whole and stand above their entropies.
    if (isNewRun && this.sides && !this.aligned) this.toggleAligned();
  }

  /** The same run with other settings: other paths, but the same scales and the same step. */
  clearForWhatIf() {
    const { cursor, follow } = this.replay;
    const { highestEntropy, highestBytes } = this.records;
    this.clear();
    Object.assign(this.replay, { cursor, follow });
    Object.assign(this.records, { highestEntropy, highestBytes });
  }

  clear() {
    this.version = -1;
    this.records.clear();
    this.tree.clear();
    this.finder.clear();
    this.replay.clear();
    this.highlight.clear();
    this.selected = { path: null, token: 0 };
    this.focused = null;
  }

  announce() {
    const now = Date.now();
    if (now - this.announcedAt < ANNOUNCE_MS && !this.run.ended) return;
    this.announcedAt = now;
    this.announcement.textContent = this.run.sentences.tree;
  }

  // ---- what there is at the cursor

  get cursor() {
    return this.replay.cursor;
  }

  get lastStep() {
    return this.records.lastStep;
  }

  get paths() {
    return this.records.paths;
  }

  shownPaths() {
    const begun = (/** @type {Path} */ path) => path.tokens.length && path.born <= this.cursor;
    return [...this.paths.values()].filter((path) => begun(path) && this.inFocus(path.id));
  }

  /** @returns {Sentences} */
  sentences() {
    return this.records.stepAt(this.cursor)?.sentences ?? this.run.sentences;
  }

  /**
   * What only a run of the model could tell about a token, in words; "" if nothing.
   * @param {number} path
   * @param {number} token
   */
  unknownAt(path, token) {
    return this.unknowns.get(`${path}.${token}`) ?? "";
  }

  /** @param {number} id */
  inFocus(id) {
    return this.focused === null || this.records.related(id, this.focused);
  }

  /**
   * The index of the selected token if it is in this path, otherwise -1.
   * @param {Path} path
   */
  selectedIn(path) {
    return this.selected.path === path.id ? this.selected.token : -1;
  }

  // ---- selecting and moving

  /**
   * @param {number | null} path
   * @param {number} token
   */
  select(path, token) {
    this.selected = { path, token: Math.max(0, token) };
    this.highlight.hover(null);
    this.render();
  }

  /** The user moved the cursor: the selection goes with it along its text. */
  cursorMoved() {
    const path = this.selected.path === null ? undefined : this.paths.get(this.selected.path);
    if (!path) return this.render();
    const place = this.records.tokenOfStep(path, this.cursor);
    this.select(place.path, place.token);
  }

  /**
   * Show this token, whatever hides it now.
   * @param {TokenPlace} place
   */
  reveal({ path, token }) {
    const step = (this.paths.get(path)?.born ?? 0) + token;
    if (!this.inFocus(path)) this.focus(null);
    if (step > this.cursor) this.replay.goTo(step);
    this.tree.camera.release();
    this.select(path, token);
  }

  /**
   * Select the last token of the path above or below.
   * @param {-1 | 0 | 1} direction 0: of the selected path itself
   */
  selectNeighbour(direction) {
    const { y } = this.layout;
    const shown = this.shownPaths().sort((one, other) => y[one.id] - y[other.id]);
    if (!shown.length) return;
    const at = shown.findIndex((path) => path.id === this.selected.path);
    const next = shown[Math.min(shown.length - 1, Math.max(0, at + direction))];
    this.select(next.id, tokenCountAt(next, this.cursor) - 1);
    this.tree.focusBox(next.id);
  }

  /** Escape: close what is open, one thing at a time. */
  leave() {
    if (!this.keyList.hidden) return this.toggleKeys();
    if (this.focused !== null) return this.focus(null);
    this.select(null, 0);
    this.root.focus({ preventScroll: true });
  }

  // ---- ways to look at it

  toggleAligned() {
    this.aligned = !this.aligned;
    this.root.classList.toggle("aligned", this.aligned);
    this.tree.camera.release();
    this.tree.camera.placed = false;
    this.render();
  }

  toggleFolded() {
    this.folded = !this.folded;
    this.foldChosen = true;
    this.rearrange();
  }

  toggleFocus() {
    this.focus(this.focused === null ? this.selected.path : null);
  }

  /** @param {number | null} path */
  focus(path) {
    this.focused = path;
    this.rearrange();
  }

  arrange() {
    this.layout = arrange(this, this.wholeLayout);
  }

  rearrange() {
    this.arrange();
    this.tree.camera.release();
    this.render();
  }

  fit() {
    this.tree.camera.toggleWhole();
    this.render();
  }

  toggleTable() {
    this.table.toggle();
    this.render();
  }

  toggleKeys() {
    this.keyList.hidden = !this.keyList.hidden;
    this.render();
  }

  // ---- drawing

  render() {
    this.animates = !this.reducedMotion.matches;
    for (const view of this.views) view.render();
    const { dataset } = this.root;
    dataset.cursor = String(this.cursor);
    dataset.paths = String(this.shownPaths().length);
    dataset.playing = String(this.replay.playing);
    this.replay.reportRest();
    this.requestFrame();
  }

  applyTheme() {
    const style = getComputedStyle(this.root);
    setTextFont(style.fontFamily);
    const [red, green, blue] = (style.color.match(/[\d.]+/g) ?? ["0", "0", "0"]).map(Number);
    this.root.classList.toggle("dark", red + green + blue > 384);
  }

  /** Sizes or colours have changed. */
  redraw() {
    if (this.version < 0) return;
    this.applyTheme();
    this.render();
  }

  requestFrame() {
    if (!this.frame) this.frame = requestAnimationFrame((now) => this.onFrame(now));
  }

  /** @param {number} now ms */
  onFrame(now) {
    this.frame = 0;
    const moving = this.tree.tick(this.animates ? EASE : 1);
    if (this.replay.tick(now) || moving) this.requestFrame();
  }
}
