// Buttons, keys and legends of the board.

import { element } from "./svg.js";

export const KEYS = "Space play or pause · ← → step · Shift+← → fork · ↑ ↓ path · Home End · Enter inspect · Escape clear · F fit · ? this help";

export function legend(entries) {
  const key = element("span", { class: "key" });
  for (const [kind, words] of entries) {
    const entry = element("span", { class: "key-entry" });
    if (kind !== "plain") entry.append(element("i", { class: `swatch ${kind}` }));
    entry.append(words);
    key.append(entry);
  }
  return key;
}

export function button(text, label, action) {
  const made = element("button", { type: "button", title: label, "aria-label": label }, text);
  made.onclick = action;
  return made;
}

export function transport(board) {
  const bar = element("div", { class: "transport", role: "toolbar", "aria-label": "Replay" });
  board.playButton = button("▶", "Play", () => board.togglePlay());
  board.playButton.classList.add("play");
  board.slider = element("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step" });
  board.slider.oninput = () => board.goTo(Number(board.slider.value));
  board.stepLabel = element("output", { class: "step-label" });
  board.speed = element("select", { "aria-label": "Speed", title: "Speed" });
  for (const speed of [0.5, 1, 2, 4]) board.speed.append(element("option", { value: speed }, `${speed}×`));
  board.speed.value = "1";
  board.alignButton = button("By step", "Lay the tree out by step, like the entropy trace", () => board.toggleAligned());
  board.fitButton = button("Fit", "Whole tree, or follow what is new (f)", () => board.fit());
  board.presentButton = button("Presenter", "Larger, for a projector", () => board.togglePresenting());
  bar.append(
    button("⏮", "First step", () => board.goTo(0)), button("◀", "One step back", () => board.goTo(board.cursor - 1)),
    board.playButton, button("▸", "One step on", () => board.goTo(board.cursor + 1)), button("⏭", "Last step, and follow", () => board.goToEnd()),
    board.slider, board.stepLabel, board.speed, board.alignButton,
    button("−", "Zoom out", () => board.tree.zoom(1 / 1.25)), button("+", "Zoom in", () => board.tree.zoom(1.25)), board.fitButton,
    board.presentButton, button("?", "Keys", () => board.toggleHelp()),
  );
  return bar;
}

export function onKey(board, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT"].includes(event.target.tagName)) return;
  if (event.key === " " && event.target.tagName === "BUTTON") return;
  const actions = {
    " ": () => board.togglePlay(),
    ArrowLeft: () => (event.shiftKey ? board.goToFork(-1) : board.goTo(board.cursor - 1)),
    ArrowRight: () => (event.shiftKey ? board.goToFork(1) : board.goTo(board.cursor + 1)),
    ArrowUp: () => board.walk(-1),
    ArrowDown: () => board.walk(1),
    Home: () => board.goTo(0),
    End: () => board.goToEnd(),
    Enter: () => board.walk(0),
    Escape: () => board.leave(),
    f: () => board.fit(),
    "?": () => board.toggleHelp(),
  };
  const action = actions[event.key];
  if (!action || (event.key === "Enter" && event.target.tagName === "BUTTON")) return;
  event.preventDefault();
  event.stopPropagation(); // the page around the board may have keys of its own
  action();
}
