// The board: one run as tree, entropy chart and KV chart, with one cursor (a step) for all three.
//
// `update(message)` takes the messages of eab/board/messages.py, which may arrive twice. The board
// does not know who delivers them: streamlit.js, widget.js or page.js.
//
// Each view is given the store of the run and the view state, both of which it only reads, and
// `send`, by which it reports what the user did. Only the board draws, after each change.

/** @import { ExtendRequest, LabelRule, Message, Send, TokenAddress, View, WhatIfRequest } from "./types.d.ts" */
import { Guidance, Presentation } from "./classroom.js";
import { Commands } from "./commands.js";
import { Announcer, CopyLink, LimitNote, SilenceNotice, Toolbar, Transport } from "./controls.js";
import { Drawer, helpPage } from "./drawer.js";
import { element, setTextFont } from "./elements.js";
import { EntropyChart } from "./entropy_chart.js";
import { arrange } from "./fitting.js";
import { Inspector } from "./inspector.js";
import { Finder, LabelBar } from "./labels.js";
import { MemoryChart } from "./memory_chart.js";
import { markLegends, Panel } from "./panel.js";
import { Pace, Replay } from "./replay.js";
import { RunStore } from "./run_store.js";
import { Outline, TableView } from "./text_views.js";
import { TreeView } from "./tree.js";
import { Sizes, ViewState } from "./view_state.js";
import { GrowthSelect } from "./what_if.js";

const EASE = 0.28; // the fraction of its remaining way that a box moves per frame
const PHONE = { width: 640, height: 480 }; // px; at or below either, an outline is shown

export class Board {
  // Handlers that a host may set; the user can request only what the messages offer.

  /** Records from this step on are missing: send them. @type {((since: number) => void) | null} */
  onMissed = null;
  /** The user wants a new run from this token. @type {((address: TokenAddress) => void) | null} */
  onGrow = null;
  /** The user wants a what-if run with these. @type {((request: WhatIfRequest) => void) | null} */
  onWhatIf = null;
  /** The user wants a run at this threshold. @type {((threshold: number) => void) | null} */
  onRunAt = null;
  /** The user wants these labels. @type {((rules: LabelRule[]) => void) | null} */
  onLabel = null;
  /** Explore, read a text, or use more seeds. @type {((asked: ExtendRequest) => void) | null} */
  onExtend = null;
  /** Continue all texts that were cut. @type {(() => void) | null} */
  onGoOn = null;
  /** Show the run in the tree that it was grown from, or alone. @type {(() => void) | null} */
  onGraft = null;
  /** The cursor or the selection may have moved. @type {(() => void) | null} */
  onLook = null;

  frame = 0;
  closing = new AbortController();

  /** @param {HTMLElement | ShadowRoot} host */
  constructor(host) {
    const label = "Run: tree, entropy and KV cache. Press ? for help.";
    this.root = element("div", { class: "eab", tabindex: "0", role: "group", "aria-label": label });
    this.sizes = new Sizes((changed) => this.resized(changed));
    this.store = new RunStore();
    this.view = new ViewState(this.store, this.sizes);
    const { root, store, view } = this;
    this.commands = new Commands(this);
    /** @type {Send} */
    const send = (name, ...values) => Reflect.apply(this.commands[name], this.commands, values);
    this.send = send;
    this.pace = new Pace();
    this.replay = new Replay(store, view, send, this.pace);
    this.presentation = new Presentation(root, view, send, this.closing.signal);
    this.guidance = new Guidance(store, view, send);
    this.entropy = new EntropyChart(store, view, send);
    this.memory = new MemoryChart(store, view, send);
    this.tree = new TreeView(store, view, send, this.entropy.svg);
    this.outline = new Outline(store, view, send, this.tree.tooltip);
    this.inspector = new Inspector(store, view, send);
    this.finder = new Finder(store, view, send);
    this.labels = new LabelBar(store, view, send);
    this.table = new TableView(store, view);
    this.copyLink = new CopyLink(store, view);
    this.help = helpPage();
    this.drawer = new Drawer(view, send, {
      token: { title: "Text and token", root: this.inspector.root },
      tables: { title: "Tables", root: this.table.root },
      help: { title: "Help", root: this.help },
    });
    this.silence = new SilenceNotice();
    this.announcer = new Announcer();
    /** @type {View[]} */
    this.aroundTree = [];
    /** @type {View[]} */
    this.views = [this.drawer, this.tree, this.outline, this.entropy, this.memory];
    this.views.push(this.inspector, this.table, this.copyLink, this.labels);
    this.build();
    root.addEventListener("keydown", (event) => onKey(view, send, event));
    for (const event of ["pointerdown", "keydown", "wheel"]) {
      root.addEventListener(event, () => this.touched(), { passive: true });
    }
    host.append(root);
    this.sizes.observe(root);
    for (const { svg } of [this.tree, this.entropy, this.memory]) this.sizes.observe(svg);
  }

  build() {
    const { send, store, view } = this;
    const toolbar = new Toolbar(store, view, send, this.tree.camera);
    const transport = new Transport(store, view, send);
    const growth = new GrowthSelect(store, send);
    const limit = new LimitNote(store, send);
    const tree = new Panel(store, view, "tree", "Tree of texts", this.tree);
    const entropy = new Panel(store, view, "entropy", "Entropy per step", this.entropy);
    const memory = new Panel(store, view, "memory", "KV cache", this.memory);
    tree.addControls(toolbar.goOn, this.labels.button);
    tree.addControls(this.copyLink.root);
    tree.head.append(toolbar.root);
    tree.picture.before(this.labels.root);
    tree.picture.prepend(this.outline.root);
    tree.picture.append(this.finder.root, this.silence.root);
    tree.key.before(limit.root);
    tree.key.after(transport.root);
    entropy.picture.append(this.entropy.bar.root);
    memory.addControls(growth.root);
    this.aroundTree = [toolbar, transport, limit, tree];
    this.views.push(...this.aroundTree, growth, entropy, memory);
    const panels = [tree.root, entropy.root, memory.root, this.drawer.root];
    const screen = element("div", { class: "screen" }, ...panels);
    this.root.append(screen, this.tree.tooltip.root, this.announcer.root);
  }

  /**
   * Handle keys pressed while nothing on the page has the focus, too.
   * @param {Document} page
   */
  takeKeysOf(page) {
    const onBody = (/** @type {KeyboardEvent} */ event) => {
      if (event.target === page.body) onKey(this.view, this.send, event);
    };
    page.addEventListener("keydown", onBody, { signal: this.closing.signal });
  }

  touched() {
    this.tree.tooltip.hide();
    this.replay.touch();
  }

  /** Stop everything; the host creates a new board if it needs one again. */
  close() {
    cancelAnimationFrame(this.frame);
    this.closing.abort();
    const { sizes, silence, replay, tree, entropy, table, copyLink } = this;
    for (const part of [sizes, silence, replay, tree, entropy, table, copyLink]) part.close();
    this.root.remove();
  }

  // ---- messages

  /** @param {Message} message */
  update(message) {
    const { store } = this;
    store.offers = message.offers ?? {};
    if (!message.since_step) this.applyTheme(); // a run that grows keeps its colours
    const isNewRun = message.run !== store.run.key;
    if (!isNewRun && (message.what_if ?? "") !== store.whatIf) this.clearForWhatIf();
    if (!isNewRun && message.version < store.version) return;
    if (store.isGap(message)) return this.onMissed?.(isNewRun ? 0 : store.lastStep);
    if (store.run.key === `${message.run} greedy`) this.clearForTree();
    else if (isNewRun) this.clear();
    store.takeRun(message);
    this.mark();
    if (!store.addRecords(message)) return this.onMissed?.(0);
    if (isNewRun) this.makeRoom();
    this.arrange();
    this.replay.onMessage(isNewRun, message);
    this.guide(message);
    this.announcer.tell(store.run);
    this.silence.onMessage(store.isGrowing);
    this.render();
  }

  /** Take what a lesson or a lecturer asks for. @param {Message} message */
  guide({ guide }) {
    this.guidance.follow(guide);
    this.root.dataset.hides = guide?.hides.join(" ") ?? "";
    this.root.dataset.highlight = guide?.highlight ?? "";
  }

  /** Set the classes by which CSS styles the kind of run. */
  mark() {
    const { isGraft, sides, unknowns } = this.store;
    this.root.classList.toggle("has-unknowns", unknowns.size > 0);
    this.root.classList.toggle("diff", sides !== null);
    this.root.classList.toggle("graft", isGraft);
    this.root.classList.toggle("movable", this.store.canMoveThreshold);
  }

  /** Clear the paths for the same run at other settings, but keep the scales and the step. */
  clearForWhatIf() {
    const { cursor, follow } = this.view;
    const { highestEntropy, highestBytes } = this.store;
    this.clear();
    Object.assign(this.view, { cursor, follow });
    Object.assign(this.store, { highestEntropy, highestBytes });
  }

  /** Clear the greedy text as its tree begins: it fades, and the scales and the camera stay. */
  clearForTree() {
    const { camera } = this.tree;
    const { top } = this.store;
    const { k } = camera.goal;
    this.outline.keepHeight();
    if (this.view.animates) for (const part of [this.tree, this.entropy]) part.fade();
    this.clear();
    this.store.highestEntropy = top;
    camera.keep(k);
  }

  clear() {
    this.store.clear();
    this.tree.clear();
    this.outline.clear();
    this.finder.clear();
    this.replay.clear();
    this.view.clear();
  }

  // ---- drawing

  /** Draw what stands around the tree first, as the room that it leaves decides the arrangement. */
  makeRoom() {
    for (const part of this.aroundTree) part.render();
    this.sizes.forget(this.tree.svg);
  }

  arrange() {
    const width = this.sizes.ofLaidOut(this.root)?.width ?? PHONE.width + 1;
    this.view.isPhone = width <= PHONE.width || innerHeight <= PHONE.height;
    this.root.classList.toggle("phone", this.view.isPhone);
    this.presentation.measure();
    this.root.classList.toggle("outlined", this.view.outlined);
    this.view.branches.update();
    this.view.layout = arrange(this.store, this.view, this.tree.camera);
  }

  render() {
    const { root, store, view } = this;
    for (const part of this.views) part.render();
    markLegends(root, store, view);
    root.classList.toggle("highlighting", view.lineage !== null);
    root.classList.toggle("numbered", view.selection.path !== null);
    root.dataset.cursor = String(view.cursor);
    root.dataset.paths = String(view.startedPaths().length);
    root.dataset.playing = String(view.playing);
    this.onLook?.();
    this.requestFrame();
  }

  applyTheme() {
    const style = getComputedStyle(this.root);
    setTextFont(style.fontFamily);
    const [red, green, blue] = (style.color.match(/[\d.]+/g) ?? ["0", "0", "0"]).map(Number);
    this.root.classList.toggle("dark", red + green + blue > 384);
  }

  /** Redraw after sizes or colours have changed. */
  redraw() {
    if (this.store.version < 0) return;
    this.applyTheme();
    this.arrange();
    this.render();
  }

  /** Rearrange boxes only if board or tree changed size, not a chart. @param {Element[]} changed */
  resized(changed) {
    if (changed.some((one) => one === this.root || one === this.tree.svg)) this.redraw();
    else if (this.store.version >= 0) this.render();
  }

  requestFrame() {
    if (!this.frame) this.frame = requestAnimationFrame((now) => this.onFrame(now));
  }

  /** @param {number} now ms */
  onFrame(now) {
    this.frame = 0;
    this.pace.begin(now);
    const jumps = !this.view.animates || (this.store.isGrowing && this.pace.isSlow);
    const moving = this.tree.tick(jumps ? 1 : EASE);
    const { cursor } = this.view;
    const goesOn = this.replay.tick(now);
    if (!goesOn && !moving) return;
    if (moving || cursor !== this.view.cursor) this.pace.drew(now);
    this.requestFrame();
  }
}

/**
 * Perform the key's action, unless the key is meant for the focused control.
 * @param {ViewState} view @param {Send} send @param {KeyboardEvent} event
 */
export function onKey(view, send, event) {
  if (!(view.presents && isRemote(event)) && isForControl(event)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = actionOf(send, key, event.shiftKey, view.presents);
  if (!action) return;
  event.preventDefault();
  event.stopPropagation(); // the surrounding page may have its own keys
  action();
}

/**
 * Whether a presenter's remote sent the key: Page Down or Page Up, wherever the focus is.
 * @param {KeyboardEvent} event
 */
function isRemote({ key, ctrlKey, metaKey, altKey }) {
  return !ctrlKey && !metaKey && !altKey && ["PageDown", "PageUp"].includes(key);
}

/** @param {KeyboardEvent} event */
function isForControl(event) {
  const target = /** @type {Element} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  if (["SELECT", "INPUT"].includes(target.tagName)) return true;
  if (["Enter", " "].includes(event.key) && target.tagName === "BUTTON") return true;
  const scrolls = /^(Arrow|Home|End| )/.test(event.key);
  return scrolls && target.closest(".drawer-body, .reading-text") !== null;
}

/**
 * @param {Send} send @param {string} key @param {boolean} shift @param {boolean} presents
 * @returns {(() => void) | undefined}
 */
function actionOf(send, key, shift, presents) {
  const move = (/** @type {-1 | 1} */ direction) => send(shift ? "goToFork" : "step", direction);
  /** @type {Record<string, () => void>} */
  const actions = {
    " ": () => send("togglePlay"),
    ArrowLeft: () => move(-1),
    ArrowRight: () => move(1),
    ArrowUp: () => send("selectNeighbour", -1),
    ArrowDown: () => send("selectNeighbour", 1),
    Home: () => send("goTo", 0),
    End: () => send("goToEnd"),
    Enter: () => send("selectNeighbour", 0),
    Escape: () => send("leave"),
    x: () => send("hideBranch"),
    b: () => send("toggleBranches"),
    o: () => send("toggleFocus"),
    w: () => send("fit"),
    d: () => send("toggleDeciding"),
    a: () => send("toggleJoins"),
    t: () => send("toggleDrawer", "tables"),
    c: () => send("goOn"),
    l: () => send("toggleLabels"),
    u: () => send("undoLabels"),
    p: () => send("togglePresenter"),
    "/": () => send("openFinder"),
    "?": () => send("toggleDrawer", "help"),
  };
  for (const place of [0, 1, 2, 3, 4, 5]) actions[place + 1] = () => send("mark", place);
  if (presents) {
    actions.PageDown = () => send("present", 1);
    actions.PageUp = () => send("present", -1);
  }
  return actions[key];
}
