// The board as a standalone page: one run, stored in the page's data block; and the story model, if
// the page has its files.

/** @import { PageData } from "./types.d.ts" */
import { Board } from "./board.js";
import { wordButton } from "./elements.js";
import { LivePanel } from "./live_panel.js";
import { byId, showPage, showTitle, unpacked, unzipped } from "./page_run.js";

async function show() {
  const page = await unpacked(byId("run").textContent);
  const board = new Board(byId("board"));
  showPage(board, page);
  board.takeKeysOf(document);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => board.redraw());
  const live = document.getElementById("live");
  if (live) addLive(live, board, page);
}

/** @param {HTMLElement} live @param {Board} board @param {PageData} page */
function addLive(live, board, page) {
  const panel = new LivePanel(live, board, embedded, (title) => {
    back.hidden = false;
    showTitle(title);
  });
  const back = wordButton("Recorded run", "Show the recorded run of this page again", () => {
    back.hidden = true;
    panel.leave();
    showPage(board, page);
  });
  back.hidden = true;
  live.querySelector("form")?.append(back);
}

/** The worker and the story model, from the data blocks of the page. */
async function embedded() {
  const blocks = [...document.querySelectorAll("script[data-file]")];
  const read = blocks.map(async (block) => {
    const name = block.getAttribute("data-file") ?? "";
    return [name, new Uint8Array(await unzipped(block.textContent).arrayBuffer())];
  });
  const { "worker.js": script, ...files } = Object.fromEntries(await Promise.all(read));
  return { url: URL.createObjectURL(new Blob([script], { type: "text/javascript" })), files };
}

show().catch((error) => {
  byId("about").textContent = error.message;
});
