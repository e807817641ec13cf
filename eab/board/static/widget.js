// The board as an anywidget: messages are a synchronised value of the widget model, and requests go
// back as custom messages.

/** @import { WidgetModel } from "./types.d.ts" */
import { Board } from "./board.js";
import { element, wordButton } from "./elements.js";
import { Shown } from "./what_if_messages.js";

/** The progress of the run, and the button that stops it. */
class StopBar {
  /** @param {WidgetModel} model */
  constructor(model) {
    this.model = model;
    const help = "Stop after this step and keep the result";
    this.stop = wordButton("Stop generation", help, () => model.send({ request: "stop" }));
    this.status = element("span", { class: "status", role: "status" });
    this.root = element("div", { class: "transport" }, this.stop, this.status);
  }

  render() {
    this.status.textContent = this.model.get("status");
    this.stop.hidden = !this.model.get("running");
    this.root.hidden = !this.status.textContent && this.stop.hidden;
  }
}

/**
 * Keep the notebook's own shortcuts out of the board, except the one for saving. JupyterLab checks
 * the attribute before a key arrives here.
 * @param {HTMLElement} el @param {AbortSignal} signal
 */
function keepKeys(el, signal) {
  const [name, value] = ["data-lm-suppress-shortcuts", "true"];
  el.setAttribute(name, value);
  const onKey = (/** @type {KeyboardEvent} */ { ctrlKey, metaKey, key }) => {
    if ((ctrlKey || metaKey) && key.toLowerCase() === "s") el.removeAttribute(name);
    else el.setAttribute(name, value);
  };
  window.addEventListener("keydown", onKey, { capture: true, signal });
}

const GONE_MS = 5000; // time to paste or undo; a moved cell gets its new board at once
/** @type {Set<WidgetModel>} */
const opened = new Set(); // the models of the boards in this page

/**
 * Stop a run whose last board in this page was closed.
 * @param {WidgetModel} model
 */
function stopIfGone(model) {
  const message = model.get("message"); // boards of one widget share the same object
  const hasBoard = [...opened].some((other) => other.get("message") === message);
  if (hasBoard || !model.get("running")) return;
  try {
    model.send({ request: "stop" });
  } catch {
    // The whole notebook was closed: its kernel continues, and so does the run.
  }
}

/**
 * Show a board in a cell. Jupyter closes it when its cell is deleted or moved or its output is
 * cleared, but not when it is collapsed or scrolled away, or when the page is left.
 * @param {{ model: WidgetModel, el: HTMLElement }} cell
 */
function render({ model, el }) {
  const board = new Board(el);
  keepKeys(el, board.closing.signal);
  board.onMissed = () => model.send({ request: "missed" });
  const bar = new StopBar(model);
  board.root.prepend(bar.root);
  el.append(element("style", {}, model.get("hides_still") ?? ""));
  const shown = new Shown(board);
  const update = () => shown.update(model.get("message"), model.get("recorded"));
  const renderBar = () => bar.render();
  /** @type {[string, () => void][]} */
  const listeners = [
    ["change:message", update],
    ["change:status", renderBar],
    ["change:running", renderBar],
  ];
  for (const [name, listener] of listeners) model.on(name, listener);
  const themes = new MutationObserver(() => board.redraw());
  const attributeFilter = ["class", "data-jp-theme-light"];
  themes.observe(document.body, { attributes: true, attributeFilter });
  renderBar();
  const first = requestAnimationFrame(update); // by then the board is in the page and has its font
  opened.add(model);
  return () => {
    cancelAnimationFrame(first);
    themes.disconnect();
    for (const [name, listener] of listeners) model.off(name, listener);
    board.close();
    opened.delete(model);
    if (model.get("running")) setTimeout(stopIfGone, GONE_MS, model);
  };
}

// A notebook holds this code once; its boards get `render` from it (eab/share/widget.py).
export default { initialize: () => ({ render }) };
