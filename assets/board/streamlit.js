// The board as a Streamlit component, version 2: called anew with every message.

import { Board } from "./board.js";

export default function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const board = (parentElement.__board ??= new Board(parentElement));
  board.resync = (version) => setTriggerValue("resync", version);
  board.rested = data?.rests ? (run, step) => setStateValue("cursor", { run, step }) : null;
  board.grow = data?.grows ? (place) => setTriggerValue("grow", place) : null;
  board.reread = data?.rereads ? (threshold) => setTriggerValue("reread", { run: data.run, threshold }) : null;
  if (data) board.update(data);
}
