// The board as a standalone page: one run, stored in the page's data block.

import { Board } from "./board.js";
import { byId, showPage, unpacked } from "./page_run.js";

async function show() {
  const page = await unpacked(byId("run").textContent);
  const board = new Board(byId("board"));
  showPage(board, page);
  board.takeKeysOf(document);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => board.redraw());
}

show().catch((error) => {
  byId("about").textContent = error.message;
});
