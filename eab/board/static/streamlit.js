// The board as a Streamlit component, version 2: Streamlit calls this with every message.

/** @import { StreamlitArguments } from "./types.d.ts" */
import { Board } from "./board.js";
import { takeKeysOf } from "./keys.js";
import { Tour } from "./tour.js";

/** @param {HTMLElement | ShadowRoot} host */
function newBoard(host) {
  const board = new Board(host);
  takeKeysOf(document, board);
  board.onLook = () => tellLook(board);
  const { signal } = board.closing;
  document.addEventListener("eab-look-asked", () => tellLook(board), { signal });
  document.addEventListener("eab-lead", () => goAlong(board), { signal });
  return board;
}

// A class leads the boards of other tabs (app/widgets/static/class.js).

/** @param {Board} board */
function tellLook(board) {
  const { run, replay, selection } = board;
  if (run.key === null) return;
  const cursor = replay.follow ? null : replay.cursor;
  const token = selection.path === null ? null : [selection.path, selection.token];
  document.dispatchEvent(new CustomEvent("eab-look", { detail: { run: run.key, cursor, token } }));
}

/** @param {Board} board */
function goAlong(board) {
  const lead = document.documentElement.dataset.eabLead;
  if (lead) board.guidance.lead(JSON.parse(lead));
}

/** @param {StreamlitArguments} component */
export default function ({ data, parentElement, setTriggerValue }) {
  const [message] = data ?? [];
  parentElement.__board ??= newBoard(parentElement);
  const board = parentElement.__board;
  const { grow = false, what_if = false, run_at = false } = message?.offers ?? {};
  const run = message?.run;
  board.onKeyframeNeeded = (version) => setTriggerValue("keyframe", version);
  board.onGrow = grow ? (address) => setTriggerValue("grow", address) : null;
  board.onWhatIf = what_if ? (request) => setTriggerValue("what_if", { run, ...request }) : null;
  board.onRunAt = run_at ? (threshold) => setTriggerValue("run_at", { run, threshold }) : null;
  const { graft = null } = message?.offers ?? {};
  board.onGraft = graft === null ? null : () => setTriggerValue("graft", !graft);
  board.grafted = graft === true;
  board.growthSteps = message?.offers?.growth_steps ?? [];
  board.link = message?.offers?.link ?? null;
  if (message) {
    board.update(message);
    goAlong(board);
  }
  const beginsByItself = message?.offers?.tour ?? null;
  if (beginsByItself !== null && !parentElement.__tour) {
    parentElement.__tour = new Tour(board);
    if (beginsByItself) parentElement.__tour.offer();
  }
  return () => {
    if (board.root.isConnected) return; // Streamlit also cleans up after an earlier call
    board.close();
    delete parentElement.__board;
    delete parentElement.__tour;
  };
}
