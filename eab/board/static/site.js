// The explorer as static files (eab/share/site.py): the recorded runs, each in a data block of the page, and
// the story model, in files beside it.

import { Board } from "./board.js";
import { LivePanel } from "./live_panel.js";
import { byId, showPage, showTitle, unpacked } from "./page_run.js";

const cards = [...document.querySelectorAll("#gallery a")].filter((card) => {
  return card instanceof HTMLAnchorElement;
});
const board = new Board(byId("board"));
const FROM_DISK =
  "The story model runs when the page comes from a web server: start one in this folder with " +
  "“python -m http.server”. The recorded runs work.";

/** Name the run that is shown; "": none of the gallery. @param {string} name */
function mark(name) {
  for (const card of cards) {
    const isShown = card.dataset.run === name;
    card.toggleAttribute("aria-current", isShown);
    if (isShown) byId("shows").textContent = card.title;
  }
}

/** @param {string} name of a recorded run */
async function open(name) {
  const blockOf = () => document.getElementById(`run-${name}`);
  if (!blockOf() && document.readyState === "loading") {
    await new Promise((resolve) => addEventListener("DOMContentLoaded", resolve, { once: true }));
  }
  const block = blockOf();
  if (!block) throw new Error(`There is no recorded run “${name}”. Choose one of those above.`);
  const page = await unpacked(block.textContent);
  panel.leave();
  mark(name);
  showPage(board, page);
}

/** Open the run of the address; if there is none, the first. */
async function openAddressed() {
  const asked = new URLSearchParams(location.search).get("run");
  const first = cards[0].dataset.run ?? "";
  try {
    await open(asked ?? first);
  } catch (error) {
    await open(first);
    byId("shows").textContent = error instanceof Error ? error.message : String(error);
  }
}

/** Open a run without loading the page again. @param {MouseEvent} event */
function onCard(event) {
  const card = event.currentTarget;
  if (!(card instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  try {
    history.pushState(null, "", card.href);
  } catch {
    // a page that was opened from the disk keeps its address
  }
  open(card.dataset.run ?? "");
}

for (const card of cards) card.addEventListener("click", onCard);
addEventListener("popstate", openAddressed);
const { worker: url = "", model = "" } = byId("live").dataset;
const base = new URL(model, location.href).href;
const panel = new LivePanel(
  byId("live"),
  board,
  async () => ({ url, base }),
  (title) => {
    mark("");
    byId("shows").textContent = "";
    showTitle(title);
  },
  location.protocol === "file:" ? FROM_DISK : "",
);
board.takeKeysOf(document);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => board.redraw());
openAddressed(); // the first run stands before this script, the others after it
