// The board as a Streamlit component, version 2: Streamlit calls this with every message.

/** @import { StreamlitArguments } from "./types.d.ts" */
import { Board } from "./board.js";

/** @param {StreamlitArguments} component */
export default function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const [message] = data ?? [];
  parentElement.__board ??= new Board(parentElement);
  const board = parentElement.__board;
  const { grow = false, what_if = false, cursor = false } = message?.offers ?? {};
  board.onKeyframeNeeded = (version) => setTriggerValue("keyframe", version);
  board.onCursorRest = cursor ? (run, step) => setStateValue("cursor", { run, step }) : null;
  board.onGrow = grow ? (address) => setTriggerValue("grow", address) : null;
  board.onWhatIf = what_if
    ? (threshold) => setTriggerValue("what_if", { run: message?.run, threshold })
    : null;
  if (message) board.update(message);
  return () => {
    if (board.root.isConnected) return; // Streamlit also cleans up after an earlier call
    board.close();
    delete parentElement.__board;
  };
}
