// The board as a standalone page: one run, stored in the page's data block.

import { Board } from "./board.js";
import { showRun, textsTable, unpacked } from "./page_run.js";

/** @param {string} id @returns {HTMLElement} */
function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`The page has no element #${id}`);
  return node;
}

async function show() {
  const packed = Uint8Array.from(atob(byId("run").textContent ?? ""), (byte) => byte.charCodeAt(0));
  const page = await unpacked(packed);
  document.title = page.title;
  byId("title").textContent = page.title;
  byId("about").textContent = page.about;
  byId("texts-sentence").textContent = page.texts.sentence;
  byId("texts").append(...textsTable(page.texts));
  const board = new Board(byId("board"));
  showRun(board, page);
  board.takeKeysOf(document);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => board.redraw());
}

show().catch((error) => {
  byId("about").textContent = error.message;
});
