// The board as a Streamlit component (version 2): Streamlit calls this with every message.

/** @import { Message, StreamlitArguments, WhatIfRequest } from "./types.d.ts" */
import { Board } from "./board.js";
import { Shown } from "./page_run.js";
import { Tour } from "./tour.js";

/** @param {StreamlitArguments["parentElement"]} host */
function newBoard(host) {
  const board = new Board(host);
  board.takeKeysOf(document);
  board.onLook = () => {
    tellLook(board);
    host.__tour?.follow();
  };
  const { signal } = board.closing;
  document.addEventListener("eab-look-asked", () => tellLook(board), { signal });
  document.addEventListener("eab-lead", () => goAlong(board), { signal });
  return board;
}

// A class leads the boards of other tabs (app/widgets/static/class.js).

/** @param {Board} board */
function tellLook({ store: { run }, view }) {
  if (run.key === null) return;
  const cursor = view.follow ? null : view.cursor;
  const token = view.selection.path === null ? null : [view.selection.path, view.selection.token];
  document.dispatchEvent(new CustomEvent("eab-look", { detail: { run: run.key, cursor, token } }));
}

/** @param {Board} board */
function goAlong(board) {
  const lead = document.documentElement.dataset.eabLead;
  if (lead) board.guidance.lead(JSON.parse(lead));
}

/** @param {StreamlitArguments} component */
export default function ({ data, parentElement, setTriggerValue }) {
  /** @type {Message | null} */
  const message = data ? JSON.parse(new TextDecoder().decode(data)) : null;
  parentElement.__board ??= newBoard(parentElement);
  const board = parentElement.__board;
  const { run, offers = {} } = message ?? {};
  board.onMissed = (since) => setTriggerValue("missed", { since });
  board.onGrow = (address) => setTriggerValue("grow", address);
  board.onGoOn = () => setTriggerValue("go_on", { run });
  board.onRunAt = (threshold) => setTriggerValue("run_at", { run, threshold });
  board.onLabel = (rules) => setTriggerValue("label", { run, rules });
  board.onExtend = (asked) => setTriggerValue("extend", { run, ...asked });
  board.onGraft = () => setTriggerValue("graft", !offers.graft);
  if (message) {
    const tell = (/** @type {WhatIfRequest} */ asked) => {
      setTriggerValue("what_if", { run, ...asked });
    };
    parentElement.__shown ??= new Shown(board);
    parentElement.__shown.update(message, message.recorded, tell).then(() => goAlong(board));
  }
  const beginsByItself = offers.tour ?? null;
  if (beginsByItself !== null && !parentElement.__tour) {
    parentElement.__tour = new Tour(board.root, board.help, board.send);
    if (beginsByItself) parentElement.__tour.offer();
  }
  return () => {
    if (board.root.isConnected) return; // Streamlit also cleans up after an earlier call
    board.close();
    delete parentElement.__board;
    delete parentElement.__shown;
    delete parentElement.__tour;
  };
}
