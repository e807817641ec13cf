// Buttons, keys, legends and the frames of the pictures.

import { element } from "./svg.js";
import { savePng, saveSvg } from "./pictures.js";

const KEYS = [
  ["Space", "play or pause"], ["← →", "step"], ["Shift + ← →", "fork"], ["Home End", "first, last step"], ["↑ ↓", "path"],
  ["Enter", "inspect"], ["O", "only the chosen path"], ["F", "fold the stretches"], ["W", "whole tree"], ["/", "find"],
  ["T", "tables"], ["P", "presenter"], ["Escape", "leave, clear"], ["?", "these keys"],
];

// Per panel: a swatch's class, and what it stands for.
const LEGENDS = {
  tree: [
    ["e0", "sure"], ["e2", "less sure"], ["e3", "hesitates: at the threshold or above"],
    ["plain", "◆ fork   ■ ended by itself   … cut at the length limit   × pruned"], ["needs-run-key", "◇ needs a run"],
    ["both-key", "both runs"], ["a-key", "A alone"], ["b-key", "B alone"],
  ],
  entropy: [["trace-key", "a path"], ["plain", "◆ a fork"]],
  memory: [["shared-key", "shared"], ["private-key", "private"], ["spare-key", "spare"], ["independent-key", "without sharing"]],
};

function legend(entries) {
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

// One picture with its title, legend, sentence and downloads. name: of the board's view, and of its sentence.
export function panel(board, title, name) {
  const frame = element("section", { class: `panel ${name}-panel` });
  const head = element("header");
  const { svg } = board[name];
  const sentence = (board[`${name}Sentence`] = element("p", { class: "sentence" }));
  const whole = () => (name === "tree" ? board.tree.wholePicture() : null);
  const save = (kind, action) => button(`↓ ${kind}`, `Download the ${title.toLowerCase()} as ${kind}`, () => action(svg, name, whole()));
  const saves = element("span", { class: "saves" });
  saves.append(save("SVG", saveSvg), save("PNG", savePng));
  head.append(element("h3", {}, title), legend(LEGENDS[name]), saves);
  frame.append(head, sentence, svg);
  return frame;
}

export function keyList() {
  const list = element("dl", { class: "help", hidden: "", "aria-label": "Keys" });
  for (const [keys, words] of KEYS) {
    const entry = element("div");
    entry.append(element("dt", {}, keys), element("dd", {}, words));
    list.append(entry);
  }
  return list;
}

export function transport(board) {
  const { replay } = board;
  const bar = element("div", { class: "transport", role: "toolbar", "aria-label": "Replay" });
  board.playButton = button("▶", "Play", () => replay.toggle());
  board.playButton.classList.add("play");
  board.slider = element("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step" });
  board.slider.oninput = () => replay.goTo(Number(board.slider.value));
  board.stepLabel = element("output", { class: "step-label" });
  const speed = element("select", { "aria-label": "Speed", title: "Speed" });
  for (const times of [0.5, 1, 2, 4]) speed.append(element("option", { value: times }, `${times}×`));
  speed.value = "1";
  speed.onchange = () => (replay.speed = Number(speed.value));
  board.followButton = button("Follow", "Stay at the newest step", () => replay.toggleFollow());
  bar.append(
    button("⏮", "First step", () => replay.goTo(0)), button("◀", "One step back", () => replay.goTo(replay.cursor - 1)),
    board.playButton, button("▸", "One step on", () => replay.goTo(replay.cursor + 1)), button("⏭", "Last step, and follow", () => replay.goToEnd()),
    board.slider, board.stepLabel, speed, board.followButton,
  );
  return bar;
}

export function tools(board) {
  const bar = element("div", { class: "transport tools", role: "toolbar", "aria-label": "View" });
  board.alignButton = button("By step", "Lay the tree out by step, like the entropy trace", () => board.toggleAligned());
  board.fitButton = button("Fit", "Whole tree, or follow what is new (w)", () => board.fit());
  board.foldButton = button("Fold", "Long stretches without a fork as chips (f)", () => board.toggleFolded());
  board.focusButton = button("Only this path", "Only the chosen path, its ancestors and what grew from it (o)", () => board.toggleFocus());
  board.tableButton = button("Tables", "The pictures as tables (t)", () => board.toggleTable());
  board.presentButton = button("Presenter", "Larger, for a projector (p)", () => board.togglePresenting());
  board.helpButton = button("?", "Keys", () => board.toggleHelp());
  bar.append(
    board.alignButton, button("−", "Zoom out", () => board.tree.zoom(1 / 1.25)), button("+", "Zoom in", () => board.tree.zoom(1.25)), board.fitButton,
    board.foldButton, board.focusButton, button("Find", "Find in the texts (/)", () => board.finder.open()), board.tableButton,
    button("⤢", "Full screen", () => board.toggleFullScreen()), board.presentButton, board.helpButton,
  );
  return bar;
}

// The controls say where the board stands.
export function showState(board) {
  const { playing, follow } = board.replay;
  Object.assign(board.slider, { max: board.lastStep, value: board.cursor });
  board.slider.setAttribute("aria-valuetext", `step ${board.cursor} of ${board.lastStep}`);
  board.stepLabel.textContent = `${board.cursor} / ${board.lastStep}`;
  board.playButton.textContent = playing ? "⏸" : "▶";
  for (const name of ["aria-label", "title"]) board.playButton.setAttribute(name, playing ? "Pause" : "Play");
  board.focusButton.disabled = board.focused === null && board.selected.path === null;
  const fits = board.tree.whole && !board.tree.touched;
  const pressed = {
    follow, align: board.aligned, fit: fits, fold: board.folded, focus: board.focused !== null,
    table: !board.table.root.hidden, present: board.presenting, help: !board.help.hidden,
  };
  for (const [name, on] of Object.entries(pressed)) board[`${name}Button`].setAttribute("aria-pressed", on);
}

export function onKey(board, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT"].includes(event.target.tagName)) return;
  if (["Enter", " "].includes(event.key) && event.target.tagName === "BUTTON") return;
  if (event.target.closest(".table-box") && /^(Arrow|Home|End| )/.test(event.key)) return; // they scroll the table
  const { replay } = board;
  const actions = {
    " ": () => replay.toggle(),
    ArrowLeft: () => (event.shiftKey ? replay.goToFork(-1) : replay.goTo(replay.cursor - 1)),
    ArrowRight: () => (event.shiftKey ? replay.goToFork(1) : replay.goTo(replay.cursor + 1)),
    ArrowUp: () => board.walk(-1),
    ArrowDown: () => board.walk(1),
    Home: () => replay.goTo(0),
    End: () => replay.goToEnd(),
    Enter: () => board.walk(0),
    Escape: () => board.leave(),
    f: () => board.toggleFolded(),
    o: () => board.toggleFocus(),
    w: () => board.fit(),
    t: () => board.toggleTable(),
    p: () => board.togglePresenting(),
    "/": () => board.finder.open(),
    "?": () => board.toggleHelp(),
  };
  const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  event.stopPropagation(); // the page around the board may have keys of its own
  action();
}
