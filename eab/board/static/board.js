// The board: one run as tree, entropy chart and KV chart, with one cursor (a step) over the three.
//
// `update(message)` takes what eab/board/messages.py sends; messages may come twice. The board does
// not know who brings them: streamlit.js, widget.js and page.js do.

/** @import { PageName } from "./drawer.js" */
/** @import { Layout, LinkOffer, Message, Path, RunInfo, Sentences, Side } from "./types.d.ts" */
/** @import { TokenAddress, View, WhatIfRequest } from "./types.d.ts" */
import { Announcer } from "./announcer.js";
import { Branches } from "./branches.js";
import { CopyLink } from "./copy_link.js";
import { DecidingForks } from "./deciding_forks.js";
import { Drawer } from "./drawer.js";
import { element } from "./elements.js";
import { EntropyChart } from "./entropy_chart.js";
import { Finder } from "./finder.js";
import { arrange } from "./fitting.js";
import { GrowthSelect } from "./growth_select.js";
import { Guidance } from "./guidance.js";
import { helpPage } from "./help.js";
import { Highlight } from "./highlight.js";
import { Inspector } from "./inspector.js";
import { onKey } from "./keys.js";
import { EMPTY_LAYOUT } from "./layout.js";
import { LimitNote } from "./limit_note.js";
import { MemoryChart } from "./memory_chart.js";
import { markLegends, Panel } from "./panel.js";
import { Presentation } from "./presentation.js";
import { decodeRun, NO_RUN, Records } from "./records.js";
import { Replay } from "./replay.js";
import { Selection } from "./selection.js";
import { SilenceNotice } from "./silence.js";
import { Sizes } from "./sizes.js";
import { TableView } from "./table.js";
import { setTextFont } from "./text.js";
import { Toolbar } from "./toolbar.js";
import { Tooltip } from "./tooltip.js";
import { Transport } from "./transport.js";
import { TreeView } from "./tree.js";
import { WhatIfBar } from "./what_if_bar.js";

const EASE = 0.28; // the part of its way that a box goes in a frame
const PHONE = 640; // px; on a narrower board the tree begins laid out by step

export class Board {
  // What a host may set.

  /** Records are missing: send the whole run. @type {((version: number) => void) | null} */
  onKeyframeNeeded = null;
  /** The user wants a new run from this token. @type {((address: TokenAddress) => void) | null} */
  onGrow = null;
  /** What if the run had had these? @type {((request: WhatIfRequest) => void) | null} */
  onWhatIf = null;
  /** The user wants a run at this threshold. @type {((threshold: number) => void) | null} */
  onRunAt = null;
  /** Show the run in the tree that it was grown from, or alone. @type {(() => void) | null} */
  onGraft = null;
  /** The cursor or the selection may have moved. @type {(() => void) | null} */
  onLook = null;
  /** Whether it is shown in that tree. */
  grafted = false;
  /** The growth steps to offer for a what-if. @type {(number | string)[]} */
  growthSteps = [];
  /** How others open this run. @type {LinkOffer | null} */
  link = null;

  // The run.

  records = new Records();
  /** @type {RunInfo} */
  run = NO_RUN;
  version = -1;
  /** The settings that a finished run is shown with instead of its own; "" as recorded. */
  whatIf = "";
  /** What only a run of the model could tell, by path and token. @type {Map<string, string>} */
  unknowns = new Map();
  /** What stands over the pictures instead of the sentences. @type {Partial<Sentences>} */
  notes = {};
  /** Of two runs in one tree: whose each path is. @type {Side[] | null} */
  sides = null;
  /** Where the boxes of the paths in view stand. @type {Layout} */
  layout = EMPTY_LAYOUT;

  // What the user looks at.

  /** The path that is shown with its relatives only. @type {number | null} */
  focused = null;
  aligned = false; // the tree lies by step, like the entropy chart

  reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  animates = !this.reducedMotion.matches;
  frame = 0;
  closing = new AbortController();

  /** @param {HTMLElement | ShadowRoot} host */
  constructor(host) {
    const label = "Run: tree, entropy and KV cache. Press ? for help.";
    this.root = element("div", { class: "eab", tabindex: "0", role: "group", "aria-label": label });
    this.sizes = new Sizes(() => this.redraw());
    this.tooltip = new Tooltip(this.root);
    this.replay = new Replay(this);
    this.highlight = new Highlight(this);
    this.selection = new Selection(this);
    this.presentation = new Presentation(this);
    this.deciding = new DecidingForks(this);
    this.branches = new Branches(this);
    this.guidance = new Guidance(this);
    this.tree = new TreeView(this);
    this.whatIfBar = new WhatIfBar(this);
    this.entropy = new EntropyChart(this);
    this.memory = new MemoryChart(this);
    this.inspector = new Inspector(this);
    this.finder = new Finder(this);
    this.table = new TableView(this);
    this.copyLink = new CopyLink(this);
    this.silence = new SilenceNotice();
    this.drawer = new Drawer(this, {
      token: { title: "Text and token", root: this.inspector.root },
      tables: { title: "Tables", root: this.table.root },
      help: { title: "Help", root: helpPage() },
    });
    this.announcer = new Announcer();
    /** @type {View[]} */
    this.views = [this.tree, this.entropy, this.memory, this.inspector, this.table, this.copyLink];
    this.build();
    this.root.addEventListener("keydown", (event) => onKey(this, event));
    for (const event of ["pointerdown", "keydown", "wheel"]) {
      this.root.addEventListener(event, () => this.touched(), { passive: true });
    }
    host.append(this.root);
    this.sizes.observe(this.root);
    for (const { svg } of [this.tree, this.entropy, this.memory]) this.sizes.observe(svg);
  }

  build() {
    const toolbar = new Toolbar(this);
    const transport = new Transport(this);
    const growth = new GrowthSelect(this);
    const limit = new LimitNote(this);
    const tree = new Panel(this, "tree", "Tree of texts", this.tree);
    const entropy = new Panel(this, "entropy", "Entropy per step", this.entropy);
    const memory = new Panel(this, "memory", "KV cache", this.memory);
    tree.addControls(this.copyLink.root);
    tree.head.append(toolbar.root);
    tree.picture.append(this.finder.root, limit.root, this.silence.root);
    tree.key.after(transport.root);
    entropy.picture.append(this.whatIfBar.root);
    memory.addControls(growth.root);
    this.views.push(toolbar, transport, growth, limit, tree, entropy, memory);
    const screen = element("div", { class: "screen" });
    screen.append(tree.root, entropy.root, memory.root, this.drawer.root);
    this.root.append(screen, this.tooltip.root, this.announcer.root);
  }

  touched() {
    this.tooltip.hide();
    this.replay.touch();
  }

  /** Nothing runs on; the host makes a new board if it needs one again. */
  close() {
    cancelAnimationFrame(this.frame);
    this.closing.abort();
    const { sizes, silence, replay, entropy, table, copyLink } = this;
    for (const part of [sizes, silence, replay, entropy, table, copyLink]) part.close();
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
    this.arrange();
    this.replay.onMessage(isNewRun, message);
    this.guidance.follow(message.guide);
    this.announcer.tell(this.run);
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
    this.whatIf = message.what_if ?? "";
    const unknowns = message.unknowns ?? [];
    this.unknowns = new Map(unknowns.map(([path, token, words]) => [`${path}.${token}`, words]));
    this.notes = message.notes ?? {};
    this.sides = message.sides ?? null;
    this.deciding.take(message);
    this.root.classList.toggle("has-unknowns", this.unknowns.size > 0);
    this.root.classList.toggle("diff", this.sides !== null);
    this.root.classList.toggle("graft", message.graft ?? false);
    // By step, both trees are whole and stand above their entropies; and a phone shows the root.
    const byStep =
      (this.sides !== null && !message.graft) || this.sizes.of(this.root).width < PHONE;
    if (isNewRun && byStep && !this.aligned) this.toggleAligned();
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
    this.selection.clear();
    this.focused = null;
    this.branches.clear();
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

  /** The paths that are drawn; several texts in one box are one path. */
  shownPaths() {
    return this.branches.drawn().filter((path) => this.hasBegun(path));
  }

  /** All paths in view, also those that are folded or joined. */
  begunPaths() {
    return [...this.paths.values()].filter(
      (path) => this.hasBegun(path) && this.isLookedAt(path.id),
    );
  }

  /** @param {Path} path */
  hasBegun({ tokens, born }) {
    return tokens.length > 0 && born <= this.cursor;
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

  /** A run of the original policy cannot be recomputed at another threshold. */
  get canMoveThreshold() {
    return this.onWhatIf !== null && this.run.policy !== "original";
  }

  /**
   * Whether a path is in the part of the tree that the user looks at, drawn or folded.
   * @param {number} id
   */
  isLookedAt(id) {
    if (this.focused !== null && !this.records.related(id, this.focused)) return false;
    return !this.branches.isHidden(id);
  }

  // ---- closing what is open

  /** Escape: close what is open, one thing at a time. */
  leave() {
    if (this.drawer.open !== null) return this.closeDrawer();
    if (this.focused !== null) return this.focus(null);
    if (this.presentation.isOn) return this.presentation.toggle();
    this.selection.drop();
  }

  closeDrawer() {
    if (this.drawer.open === "token") this.selection.drop();
    this.drawer.show(null);
    this.render();
    this.root.focus({ preventScroll: true });
  }

  /** @param {PageName} name */
  toggleDrawer(name) {
    this.drawer.show(this.drawer.open === name ? null : name);
    this.render();
  }

  // ---- ways to look at it

  toggleAligned() {
    this.aligned = !this.aligned;
    this.root.classList.toggle("aligned", this.aligned);
    this.tree.camera.release();
    this.tree.camera.placed = false;
    this.arrange();
    this.render();
  }

  toggleFocus() {
    this.focus(this.focused === null ? this.selection.path : null);
  }

  /** @param {number | null} path */
  focus(path) {
    this.focused = path;
    this.rearrange();
  }

  arrange() {
    this.branches.update();
    this.layout = arrange(this);
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

  // ---- drawing

  render() {
    this.animates = !this.reducedMotion.matches;
    for (const view of this.views) view.render();
    markLegends(this);
    this.root.classList.toggle("numbered", this.selection.path !== null);
    const { dataset } = this.root;
    dataset.cursor = String(this.cursor);
    dataset.paths = String(this.begunPaths().length);
    dataset.playing = String(this.replay.playing);
    this.onLook?.();
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
    this.presentation.measure();
    this.arrange();
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
