// The board as an anywidget: messages are a synchronised value of the model, requests go back as
// custom messages.

/** @import { WidgetModel } from "./types.d.ts" */
import { Board } from "./board.js";
import { wordButton } from "./buttons.js";
import { element } from "./elements.js";

/** How far the run is, and the button that stops it. */
class StopBar {
  /** @param {WidgetModel} model */
  constructor(model) {
    this.model = model;
    const help = "End the run after this step; what it has stays";
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

/** @param {{ model: WidgetModel, el: HTMLElement }} cell */
function render({ model, el }) {
  el.dataset.lmSuppressShortcuts = "true"; // the notebook's own keys stay out of the board
  const board = new Board(el);
  board.onKeyframeNeeded = () => model.send({ request: "keyframe" });
  const bar = new StopBar(model);
  board.root.prepend(bar.root);
  const update = () => board.update(model.get("message"));
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
  const first = requestAnimationFrame(update); // in the page by then, so texts have its font
  return () => {
    cancelAnimationFrame(first);
    themes.disconnect();
    for (const [name, listener] of listeners) model.off(name, listener);
    board.close();
  };
}

export default { render };
