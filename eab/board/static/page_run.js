// A recorded run on a page without Python (eab/share/html_page.py): its board, which recomputes the
// run at other settings by itself, and the table of its texts.

/** @import { Board } from "./board.js" */
/** @import { Message, PageData, RunEvent } from "./types.d.ts" */
import { element } from "./elements.js";
import { boardMessage, fold } from "./messages.js";
import { WhatIf } from "./what_if_messages.js";

const MOST_TEXTS = 100; // shown at first

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`The page has no element #${id}`);
  return node;
}

/** The data of a page. @param {string | null} packed @returns {Promise<PageData>} */
export async function unpacked(packed) {
  return unzipped(packed).json();
}

/** The content of a data block. @param {string | null} packed gzipped, in base64 */
export function unzipped(packed) {
  if (!("DecompressionStream" in globalThis)) {
    throw new Error("This page needs a newer browser: one that can unpack its data.");
  }
  const bytes = Uint8Array.from(atob(packed ?? ""), (byte) => byte.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream);
}

/** Show a run on the board and around it. @param {Board} board @param {PageData} page */
export function showPage(board, { title, about, texts, message, events }) {
  showTitle(title);
  byId("about").textContent = about;
  byId("texts-title").hidden = false;
  byId("texts-sentence").textContent = texts.sentence;
  byId("texts").replaceChildren(...textsTable(texts));
  board.onMissed = null;
  const made = message.paths ? {} : boardMessage(fold(events));
  showRun(board, /** @type {Message} */ ({ ...made, ...message }), events);
}

/** Show a title, and nothing else around the board. @param {string} title */
export function showTitle(title) {
  document.title = title;
  byId("title").textContent = title;
  for (const id of ["about", "texts-sentence", "texts"]) byId(id).replaceChildren();
  byId("texts-title").hidden = true;
}

/**
 * Show a run that has ended, and let its threshold be dragged.
 * @param {Board} board @param {Message} message @param {RunEvent[]} events
 */
export function showRun(board, message, events) {
  const whatIf = events.length ? new WhatIf(events, message) : null;
  board.onWhatIf = (request) => {
    try {
      if (whatIf) board.update(whatIf.at(request));
    } catch (error) {
      if (whatIf) board.update(whatIf.refused(error));
    }
  };
  if (message.asked) board.onWhatIf(message.asked);
  else board.update(whatIf?.message ?? message);
}

/** @param {string[]} cells @param {"th" | "td"} kind */
function tableRow(cells, kind) {
  return element("tr", {}, ...cells.map((cell) => element(kind, {}, cell)));
}

/** The heaviest texts, and the others on request. @param {PageData["texts"]} texts */
function textsTable({ columns, rows }) {
  const lineOf = (/** @type {string[]} */ cells) => tableRow(cells, "td");
  const head = element("thead", {}, tableRow(columns, "th"));
  const body = element("tbody", {}, ...rows.slice(0, MOST_TEXTS).map(lineOf));
  const table = element("table", {}, head, body);
  if (rows.length <= MOST_TEXTS) return [table];
  const showAll = `Show all ${rows.length.toLocaleString("en")} texts`;
  const more = element("button", { type: "button" }, showAll);
  more.addEventListener("click", () => {
    body.append(...rows.slice(MOST_TEXTS).map(lineOf));
    more.remove();
  });
  return [table, more];
}
