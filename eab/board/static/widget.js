// The board as an anywidget: messages are a synchronised value of the model, requests go back as custom messages.

import { Board } from "./board.js";
import { element } from "./svg.js";
import { button } from "./controls.js";

function stopBar(model) {
  const bar = element("div", { class: "transport" });
  const stop = button("Stop generation", "End the run after this step; what it has stays", () => model.send({ wish: "stop" }));
  const status = element("span", { class: "status", role: "status" });
  bar.append(stop, status);
  const show = () => {
    status.textContent = model.get("status");
    stop.hidden = !model.get("running");
    bar.hidden = !status.textContent && stop.hidden;
  };
  return { bar, show };
}

function render({ model, el }) {
  el.dataset.lmSuppressShortcuts = "true"; // the notebook's own keys stay out of the board
  const board = new Board(el);
  board.resync = () => model.send({ wish: "all" });
  const { bar, show } = stopBar(model);
  board.root.prepend(bar);
  const update = () => board.update(model.get("message"));
  const listeners = [["change:message", update], ["change:status", show], ["change:running", show]];
  for (const [name, listener] of listeners) model.on(name, listener);
  const themes = new MutationObserver(() => board.retheme());
  themes.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light"] });
  show();
  const first = requestAnimationFrame(update); // in the page by then: texts are measured in the page's font
  return () => {
    cancelAnimationFrame(first);
    themes.disconnect();
    for (const [name, listener] of listeners) model.off(name, listener);
    board.close();
  };
}

export default { render };
