// The keyboard: what each key does; help.js lists the keys.

/** @import { Board } from "./board.js" */

/**
 * Keys pressed where nothing on the page has the focus are for the board, too.
 * @param {Document} page
 * @param {Board} board
 */
export function takeKeysOf(page, board) {
  const onBody = (/** @type {KeyboardEvent} */ event) => {
    if (event.target === page.body) onKey(board, event);
  };
  page.addEventListener("keydown", onBody, { signal: board.closing.signal });
}

/**
 * Do what the key stands for, unless it is meant for the control that has the focus.
 * @param {Board} board
 * @param {KeyboardEvent} event
 */
export function onKey(board, event) {
  if (!isRemote(board, event) && isForControl(event)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = actionOf(board, key, event.shiftKey);
  if (!action) return;
  event.preventDefault();
  event.stopPropagation(); // the page around the board may have keys of its own
  action();
}

/**
 * A presenter's remote sends Page Down and Page Up, wherever the focus is.
 * @param {Board} board
 * @param {KeyboardEvent} event
 */
function isRemote(board, { key, ctrlKey, metaKey, altKey }) {
  const plain = !ctrlKey && !metaKey && !altKey;
  return plain && board.presentation.isOn && ["PageDown", "PageUp"].includes(key);
}

/** @param {KeyboardEvent} event */
function isForControl(event) {
  const target = /** @type {Element} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  if (["SELECT", "INPUT"].includes(target.tagName)) return true;
  if (["Enter", " "].includes(event.key) && target.tagName === "BUTTON") return true;
  const scrolls = /^(Arrow|Home|End| )/.test(event.key);
  return scrolls && target.closest(".drawer-body") !== null;
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
    ArrowUp: () => board.selection.goToNeighbour(-1),
    ArrowDown: () => board.selection.goToNeighbour(1),
    Home: () => replay.goTo(0),
    End: () => replay.goToEnd(),
    Enter: () => board.selection.goToNeighbour(0),
    Escape: () => board.leave(),
    x: () => board.branches.hideSelected(),
    b: () => board.branches.toggle(),
    o: () => board.toggleFocus(),
    w: () => board.fit(),
    d: () => board.deciding.toggle(),
    a: () => board.branches.toggleJoins(),
    t: () => board.toggleDrawer("tables"),
    p: () => board.presentation.toggle(),
    "/": () => board.finder.open(),
    "?": () => board.toggleDrawer("help"),
  };
  if (board.presentation.isOn) {
    actions.PageDown = () => replay.present(1);
    actions.PageUp = () => replay.present(-1);
  }
  return actions[key];
}
