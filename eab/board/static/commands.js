// What the user can do: the commands that a view can send to the board, such as `send("goTo", 3)`.
// Only this module and the hosts have access to the whole board.

/** @import { Board } from "./board.js" */
/** @import { PageName } from "./drawer.js" */
/** @import { ExtendRequest, LabelRule, Path, TokenAddress, TokenPlace, WhatIfRequest } from "./types.d.ts" */
import { markNames, withMark } from "./labels.js";
import { placeIn, tokenCountAt } from "./paths.js";

export class Commands {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.store = board.store;
    this.view = board.view;
  }

  // ---- drawing

  render() {
    this.board.render();
  }

  /** Arrange again after a change in which boxes are drawn. */
  rearrange() {
    this.board.arrange();
    this.board.tree.camera.release();
    this.render();
  }

  /** Show the tree as at the start. */
  refit() {
    this.board.tree.camera.reset();
    this.rearrange();
  }

  /** Draw frames until everything is at its place. */
  animate() {
    this.board.requestFrame();
  }

  // ---- the cursor

  /** @param {number} step */
  goTo(step) {
    this.board.replay.goTo(step);
  }

  /** @param {-1 | 1} direction */
  step(direction) {
    this.goTo(this.view.cursor + direction);
  }

  goToEnd() {
    this.goTo(this.store.lastStep);
  }

  /** @param {-1 | 1} direction */
  goToFork(direction) {
    this.board.replay.goToNext(direction, this.store.forkSteps());
  }

  /**
   * Step as a presenter's remote does: through the start, every fork and the end.
   * @param {-1 | 1} direction
   */
  present(direction) {
    const { lastStep } = this.store;
    this.board.replay.goToNext(direction, [0, ...this.store.forkSteps(), lastStep]);
  }

  togglePlay() {
    this.board.replay.toggle();
  }

  toggleFollow() {
    if (!this.view.follow) return this.goToEnd();
    this.view.follow = false;
    this.render();
  }

  /** @param {number} times */
  setSpeed(times) {
    this.board.replay.speed = times;
  }

  // ---- the selection

  /** @param {number} path @param {number} token */
  select(path, token) {
    this.view.selection = { path, token: Math.max(0, token) };
    this.view.drawer = "token";
    this.hover(null);
    this.render();
  }

  /** Select the last token of a box. @param {Path} box */
  selectLast(box) {
    const { path, index } = placeIn(box, tokenCountAt(box, this.view.cursor) - 1);
    this.select(path.id, index);
  }

  deselect() {
    this.view.deselect();
    this.render();
  }

  /** Move the selection along its text to the cursor that the user moved. */
  followCursor() {
    const path = this.store.paths.get(this.view.selection.path ?? -1);
    if (!path) return this.render();
    const place = this.store.tokenOfStep(path, this.view.cursor);
    this.select(place.path, place.token);
  }

  /** Select this token and show it if it is hidden. @param {TokenPlace} place */
  reveal({ path, token }) {
    const record = this.store.paths.get(path);
    const step = (record?.born ?? 0) + token;
    if (record && !this.view.branches.isShown(record)) this.showAll();
    if (step > this.view.cursor) this.goTo(step);
    this.board.tree.camera.release();
    this.select(path, token);
  }

  /**
   * Select the last token of the path above or below.
   * @param {-1 | 0 | 1} direction 0 keeps the selected path
   */
  selectNeighbour(direction) {
    const { layout, outlined } = this.view;
    const place = outlined ? layout.rank : layout.y;
    const shown = this.view.shownPaths().sort((a, b) => place[a.id] - place[b.id]);
    if (!shown.length) return;
    const at = this.view.box ? shown.indexOf(this.view.box) : -1;
    const next = shown[Math.min(shown.length - 1, Math.max(0, at + direction))];
    this.selectLast(next);
    (outlined ? this.board.outline : this.board.tree).focusBox(next.id);
  }

  /** @param {number | null} path the one under the pointer */
  hover(path) {
    if (this.view.hover(path)) this.render();
  }

  // ---- which branches are drawn

  hideBranch() {
    const { box } = this.view;
    if (!box || box.parent < 0) return;
    this.view.branches.hidden.add(box.id);
    this.deselect();
    this.rearrange();
    this.takeFocus();
  }

  /** @param {number} id of the path that forks, or of a box of several texts */
  unfold(id) {
    this.view.branches.opened.add(id);
    this.rearrange();
  }

  /** Draw all branches, or fold the small ones again. */
  toggleBranches() {
    const { branches } = this.view;
    if (!branches.areAllDrawn || branches.folds) return this.showAll();
    branches.folds = true;
    this.rearrange();
  }

  showAll() {
    this.view.branches.showAll();
    this.focus(null);
  }

  /** Draw texts with the same answer as one box, or each by itself again. */
  toggleJoins() {
    if (this.view.branches.toggleJoins()) this.rearrange();
  }

  toggleFocus() {
    this.focus(this.view.focused === null ? this.view.selection.path : null);
  }

  /** @param {number | null} path */
  focus(path) {
    this.view.focused = path;
    this.rearrange();
  }

  // ---- labels

  toggleLabels() {
    if (!this.store.offers.label) return;
    this.view.labelsOpen = !this.view.labelsOpen;
    this.board.arrange();
    this.render();
    if (this.view.labelsOpen) this.board.labels.focus();
    else this.takeFocus();
  }

  /** @param {LabelRule[]} rules */
  setLabels(rules) {
    if (!this.store.offers.label) return;
    this.view.labelHistory.push(this.store.labels.rules);
    this.board.onLabel?.(rules);
  }

  undoLabels() {
    const rules = this.view.labelHistory.pop();
    if (rules && this.store.offers.label) this.board.onLabel?.(rules);
  }

  /** @param {string} label */
  removeLabel(label) {
    this.setLabels(this.store.labels.rules.filter((rule) => rule.label !== label));
  }

  /** @param {string} label @param {string} name its new one */
  renameLabel(label, name) {
    const { rules } = this.store.labels;
    this.setLabels(rules.map((rule) => (rule.label === label ? { ...rule, label: name } : rule)));
  }

  /** Let the model explore, read a text, or use more seeds. @param {ExtendRequest} asked */
  extend(asked) {
    this.view.labelHistory = []; // its rules may name other paths then
    if (this.store.offers.extend) this.board.onExtend?.(asked);
  }

  /** Label all that follows the selected token, or take the label back. @param {number} place */
  mark(place) {
    const label = markNames(this.store)[place];
    const { path, token } = this.view.selection;
    if (label === undefined || path === null) return;
    this.setLabels(withMark(this.store.labels.rules, label, path, token));
  }

  // ---- display modes

  toggleAligned() {
    this.view.aligned = !this.view.aligned;
    this.board.root.classList.toggle("aligned", this.view.aligned);
    this.board.tree.camera.release();
    this.board.tree.camera.placed = false;
    this.board.arrange();
    this.render();
  }

  toggleDeciding() {
    if (!this.store.deciding.effects.size) return;
    this.view.marksDeciding = !this.view.marksDeciding;
    this.render();
  }

  fit() {
    this.board.tree.camera.toggleWhole();
    this.render();
  }

  /** @param {number} factor */
  zoom(factor) {
    this.board.tree.camera.zoom(factor);
  }

  togglePresenter() {
    this.board.presentation.toggle();
  }

  toggleFullScreen() {
    this.board.presentation.toggleFullScreen();
  }

  // ---- what is open

  openFinder() {
    this.board.finder.open();
  }

  /** @param {PageName} name */
  toggleDrawer(name) {
    this.view.drawer = this.view.drawer === name ? null : name;
    this.render();
  }

  /** Open the help on what the path limit does to the weights. */
  explainLimit() {
    this.view.drawer = "help";
    this.render();
    this.board.drawer.scrollTo("limit-topic");
  }

  closeDrawer() {
    if (this.view.drawer === "token") this.deselect();
    this.view.drawer = null;
    this.render();
    this.takeFocus();
  }

  /** Move the keyboard focus to the board. */
  takeFocus() {
    this.board.root.focus({ preventScroll: true });
  }

  /** Escape: close what is open, one thing at a time. */
  leave() {
    if (this.view.drawer !== null) return this.closeDrawer();
    if (this.view.focused !== null) return this.focus(null);
    if (this.view.presents) return this.togglePresenter();
    this.deselect();
  }

  // ---- requests to the host

  /** Request a new run from this token. @param {TokenAddress} address */
  grow(address) {
    this.board.onGrow?.(address);
  }

  /** Continue the selected text, or all, if they were cut at the length limit. */
  goOn() {
    const { offers, run } = this.store;
    const cut = this.view.cutText;
    if (cut && offers.grow && run.key !== null) {
      this.grow({ run: run.key, path: cut.id, token: cut.tokens.length - 1, candidate: -1 });
    } else if (offers.go_on) {
      this.board.onGoOn?.();
    }
  }

  /** Request a what-if run with these settings. @param {WhatIfRequest} request */
  askWhatIf(request) {
    this.board.onWhatIf?.(request);
  }

  /** Request a what-if run at this threshold. @param {number} threshold nats */
  tryThreshold(threshold) {
    const { store, view } = this;
    // so tree, sentence and chart show the same step
    if (view.cursor < store.lastStep || !view.follow) this.goToEnd();
    const notes = { entropy: "Recomputing …" };
    store.notes = notes;
    this.askWhatIf({ threshold, r: store.run.r });
    if (store.notes === notes) this.render(); // the answer comes later
  }

  /** Request a run of the model at the threshold that the board shows. */
  runHere() {
    const { key, threshold } = this.store.run;
    if (key !== null) this.board.onRunAt?.(threshold);
  }

  /** Show the run in the tree that it was grown from, or alone. */
  toggleGraft() {
    this.board.onGraft?.();
  }
}
