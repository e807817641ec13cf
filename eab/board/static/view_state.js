// What the user looks at: the cursor, the selection, which branches are drawn, how, and how large.
// Views read it and change it through the commands that they send (commands.js).

/** @import { PageName } from "./drawer.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { LabelRule, Layout, Path, Size } from "./types.d.ts" */
import { FittedTexts } from "./label.js";
import { EMPTY_LAYOUT } from "./layout.js";
import { Branches, lineOf, textsAt } from "./paths.js";

const CHART_TEXT = 11.5; // px, as `.tick-label` in pictures.css
const RING = { smallest: 7, largest: 13 }; // px, radius; its area grows with the share

export class ViewState {
  // The cursor, moved by replay.js.

  cursor = 0; // a step
  follow = true; // whether the cursor stays at the newest step
  playing = false;

  // The selected token: the drawer describes it, and the pictures highlight it.

  /** token: its index in the path. @type {{ path: number | null, token: number }} */
  selection = { path: null, token: 0 };
  /** The path under the pointer. @type {number | null} */
  hovered = null;
  /** The highlighted path and its ancestors. @type {Set<number> | null} */
  lineage = null;
  /** The paths with matches of the search. @type {Set<number>} */
  found = new Set();

  // Display modes.

  /** The path that is shown with only its relatives. @type {number | null} */
  focused = null;
  isPhone = false; // whether the board is narrow or the window low
  aligned = false; // whether the tree is aligned by step, like the entropy chart
  marksDeciding = false; // whether to mark the forks that decide the answer
  labelsOpen = false; // whether the controls of the labels are shown
  /** The labels before each change, to undo it. @type {LabelRule[][]} */
  labelHistory = [];
  /** The page that is open in the drawer. @type {PageName | null} */
  drawer = null;
  presents = false; // whether the board is large, for a projector
  textSize = 0; // px; of the board's own text, from screens.css
  reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  /** The places of the boxes of the paths in view. @type {Layout} */
  layout = EMPTY_LAYOUT;
  fitted = new FittedTexts(); // those of the boxes
  /** @type {{ cursor: number, changes: number, shown: Path[], begun: Path[], texts: Path[] | null }} */
  begun = { cursor: -1, changes: -1, shown: [], begun: [], texts: null };

  /**
   * @param {RunStore} store
   * @param {Sizes} sizes of the pictures
   */
  constructor(store, sizes) {
    this.store = store;
    this.sizes = sizes;
    this.branches = new Branches(store, this);
  }

  /** Reset for another run. */
  clear() {
    this.cursor = 0;
    this.follow = true;
    this.playing = false;
    this.focused = null;
    this.found = new Set();
    this.labelHistory = [];
    this.deselect();
    this.branches.clear();
  }

  /** Whether an outline replaces the tree: a phone is too narrow for boxes side by side. */
  get outlined() {
    return this.isPhone && !this.aligned;
  }

  get animates() {
    return !this.reducedMotion.matches;
  }

  /** Whether the cursor is catching up with a live run. */
  get gliding() {
    return this.follow && this.cursor < this.store.lastStep;
  }

  // ---- what is drawn

  /** The paths that are drawn; texts that share a box count as one path. */
  shownPaths() {
    return [...this.atCursor().shown];
  }

  /** All paths in view, including folded and joined ones. */
  startedPaths() {
    return [...this.atCursor().begun];
  }

  /** The texts of the boxes that are drawn. */
  shownTexts() {
    const found = this.atCursor();
    found.texts ??= found.shown.flatMap((path) => textsAt(path, found.cursor));
    return found.texts;
  }

  /** The paths that have started at the cursor; cached, as all pictures need them in each frame. */
  atCursor() {
    const { branches, cursor } = this;
    if (this.begun.cursor !== cursor || this.begun.changes !== branches.changes) {
      const [shown, begun] = [branches.drawn(), branches.inView()].map((paths) =>
        paths.filter((path) => this.hasStarted(path)),
      );
      this.begun = { cursor, changes: branches.changes, shown, begun, texts: null };
    }
    return this.begun;
  }

  /** @param {Path} path */
  hasStarted({ tokens, born }) {
    return tokens.length > 0 && born <= this.cursor;
  }

  /**
   * Whether a path is in the part of the tree that the user looks at, drawn or folded.
   * @param {number} id
   */
  isLookedAt(id) {
    if (this.focused !== null && !this.store.related(id, this.focused)) return false;
    return !this.branches.isHidden(id);
  }

  /** The factor by which charts are enlarged, so their numbers are as large as the texts. */
  get chartScale() {
    return this.presents ? this.textSize / CHART_TEXT : 1;
  }

  // ---- the selection

  deselect() {
    this.selection = { path: null, token: 0 };
    if (this.drawer === "token") this.drawer = null;
    this.hover(null); // or the pictures would stay faded
  }

  /** The box of the selected text. */
  get box() {
    const path = this.store.paths.get(this.selection.path ?? -1);
    return path && this.branches.boxOf(path);
  }

  /**
   * The index of the selected token in the box of this path; -1 if it is elsewhere.
   * @param {Path} box
   */
  tokenIn(box) {
    let before = 0;
    for (const { id, tokens } of lineOf(box)) {
      if (id === this.selection.path) return before + this.selection.token;
      before += tokens.length;
    }
    return -1;
  }

  /** The selected text, if it was cut at the length limit. */
  get cutText() {
    const path = this.store.paths.get(this.selection.path ?? -1);
    return path?.status === "finished" && path.finishReason === "length" ? path : null;
  }

  // ---- the highlight

  /** The path under the pointer, or else the selected one. */
  get highlighted() {
    return this.hovered ?? this.selection.path;
  }

  /**
   * @param {number | null} path the one under the pointer
   * @returns {boolean} whether the highlight changed
   */
  hover(path) {
    const names = () => [...(this.lineage ?? [])].join();
    const before = names();
    this.hovered = path;
    const { highlighted } = this;
    this.lineage = highlighted === null ? null : this.store.lineageOf(highlighted);
    return names() !== before;
  }

  /**
   * Classes of a path: its side of a diff, and whether it is highlighted or related to the
   * highlighted one (an ancestor, or grown out of it).
   * @param {number} id
   */
  classOf(id) {
    const { sides } = this.store;
    const side = sides ? ` side-${sides[id]}` : "";
    const { highlighted } = this;
    if (this.lineage === null || highlighted === null) return side;
    if (this.lineage.has(id)) return `${side} highlighted related`;
    return this.store.lineageOf(id).has(highlighted) ? `${side} related` : side;
  }

  // ---- which forks decide the answer

  get showsDeciding() {
    return this.marksDeciding && this.store.deciding.effects.size > 0;
  }

  /**
   * Radius of the ring around the mark of a fork; 0 for none.
   * @param {Path} path that forks
   */
  ringOf(path) {
    const effect = this.showsDeciding ? this.store.deciding.effects.get(path.id) : undefined;
    const share = effect?.share ?? 0;
    return share > 0 ? Math.max(RING.smallest, RING.largest * Math.sqrt(share)) : 0;
  }

  /**
   * Whether the fork changes only the wording.
   * @param {Path} path that forks
   */
  isWording(path) {
    return this.showsDeciding && this.store.deciding.effects.get(path.id)?.share === 0;
  }
}

/**
 * The sizes of the pictures. They are stored when they change, because reading them while drawing
 * would make the browser lay out the page each time.
 */
export class Sizes {
  /** @param {(changed: Element[]) => void} redraw */
  constructor(redraw) {
    /** @type {Map<Element, Size>} */
    this.known = new Map();
    this.observer = new ResizeObserver((entries) => {
      const stale = entries.filter(({ target, contentRect: { width, height } }) => {
        const before = this.known.get(target) ?? { width: 0, height: 0 };
        // `ofLaidOut` reads whole pixels
        const isStale =
          Math.abs(width - before.width) >= 1 || Math.abs(height - before.height) >= 1;
        if (isStale && width) this.known.set(target, { width, height });
        return isStale;
      });
      if (stale.length) redraw(stale.map(({ target }) => target));
    });
  }

  /** @param {Element} element */
  observe(element) {
    this.observer.observe(element);
  }

  /** Read the size anew when it is next needed. @param {Element} element */
  forget(element) {
    this.known.delete(element);
  }

  close() {
    this.observer.disconnect();
  }

  /** @param {Element} element @returns {Size} a typical one if it is not laid out yet */
  of(element) {
    return this.ofLaidOut(element) ?? { width: 600, height: 220 };
  }

  /** @param {Element} element @returns {Size | undefined} */
  ofLaidOut(element) {
    const known = this.known.get(element);
    if (known) return known;
    const { clientWidth: width, clientHeight: height } = element;
    if (width) this.known.set(element, { width, height });
    return this.known.get(element);
  }
}
