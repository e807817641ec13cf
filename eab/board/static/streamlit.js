// The board as a Streamlit component, version 2: called anew with every message.

import { Board } from "./board.js";

export default function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const [message] = data ?? [];
  const board = (parentElement.__board ??= new Board(parentElement));
  board.resync = (version) => setTriggerValue("resync", version);
  board.rested = message?.rests ? (run, step) => setStateValue("cursor", { run, step }) : null;
  board.grow = message?.grows ? (place) => setTriggerValue("grow", place) : null;
  board.reread = message?.rereads ? (threshold) => setTriggerValue("reread", { run: message.run, threshold }) : null;
  if (message) board.update(message);
  return () => {
    if (board.root.isConnected) return; // Streamlit also tidies up after a call that a later one has overtaken
    board.close();
    delete parentElement.__board;
  };
}
