// The keyboard: what each key does, and the list of them.

/** @import { Board } from "./board.js" */
import { element } from "./elements.js";

const KEYS = [
  ["Space", "play or pause"],
  ["← →", "one step back or forward"],
  ["Shift + ← →", "previous or next fork"],
  ["Home End", "first or last step"],
  ["↑ ↓", "previous or next path"],
  ["Enter", "inspect a token"],
  ["O", "only the selected path"],
  ["F", "fold long texts"],
  ["W", "fit the whole tree"],
  ["/", "find words"],
  ["T", "tables"],
  ["P", "presenter"],
  ["Escape", "close, clear the selection"],
  ["?", "show or hide these keys"],
];

export function keyList() {
  const list = element("dl", { class: "help", hidden: "", "aria-label": "Keys" });
  for (const [keys, words] of KEYS) {
    const entry = element("div");
    entry.append(element("dt", {}, keys), element("dd", {}, words));
    list.append(entry);
  }
  return list;
}

/**
 * Do what the key stands for, unless it is meant for the control that has the focus.
 * @param {Board} board
 * @param {KeyboardEvent} event
 */
export function onKey(board, event) {
  if (isForControl(event)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = actionOf(board, key, event.shiftKey);
  if (!action) return;
  event.preventDefault();
  event.stopPropagation(); // the page around the board may have keys of its own
  action();
}

/** @param {KeyboardEvent} event */
function isForControl(event) {
  const target = /** @type {Element} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  if (["SELECT", "INPUT"].includes(target.tagName)) return true;
  if (["Enter", " "].includes(event.key) && target.tagName === "BUTTON") return true;
  const scrollsTable = /^(Arrow|Home|End| )/.test(event.key);
  return scrollsTable && target.closest(".table-box") !== null;
}

/**
 * @param {Board} board
 * @param {string} key
 * @param {boolean} shift
 * @returns {(() => void) | undefined}
 */
function actionOf(board, key, shift) {
  const { replay } = board;
  const move = (/** @type {-1 | 1} */ direction) =>
    shift ? replay.goToFork(direction) : replay.goTo(replay.cursor + direction);
  /** @type {Record<string, () => void>} */
  const actions = {
    " ": () => replay.toggle(),
    ArrowLeft: () => move(-1),
    ArrowRight: () => move(1),
    ArrowUp: () => board.selectNeighbour(-1),
    ArrowDown: () => board.selectNeighbour(1),
    Home: () => replay.goTo(0),
    End: () => replay.goToEnd(),
    Enter: () => board.selectNeighbour(0),
    Escape: () => board.leave(),
    f: () => board.toggleFolded(),
    o: () => board.toggleFocus(),
    w: () => board.fit(),
    t: () => board.toggleTable(),
    p: () => board.presentation.toggle(),
    "/": () => board.finder.open(),
    "?": () => board.toggleKeys(),
  };
  return actions[key];
}
