// The keys, and the commands that they send.

/** @import { Send } from "./types.d.ts" */
/** @import { ViewState } from "./view_state.js" */

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
