// A recorded run on a page without Python (eab/share/html_page.py): its board, which recomputes the
// run at other settings by itself, and the table of its texts.

/** @import { Board } from "./board.js" */
/** @import { Message, PageData } from "./types.d.ts" */
import { element } from "./elements.js";
import { boardMessage } from "./messages.js";
import { fold } from "./run.js";
import { WhatIf } from "./what_if_messages.js";

const MOST_TEXTS = 100; // shown at first

/** The data of a page from its packed bytes. @param {BodyInit} packed @returns {Promise<PageData>} */
export async function unpacked(packed) {
  if (!("DecompressionStream" in globalThis)) {
    throw new Error("This page needs a newer browser: one that can unpack its data.");
  }
  const stream = new Response(packed).body?.pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

/** Show the run, and let its threshold be dragged. @param {Board} board @param {PageData} page */
export function showRun(board, { message, events }) {
  const made = message.paths ? {} : boardMessage(fold(events));
  const recorded = /** @type {Message} */ ({ ...made, ...message });
  const whatIf = events.length ? new WhatIf(events, recorded) : null;
  board.onWhatIf = (request) => {
    if (whatIf) board.update(whatIf.at(request));
  };
  board.update(whatIf?.message ?? recorded);
}

/** @param {string[]} cells @param {"th" | "td"} kind */
function tableRow(cells, kind) {
  return element("tr", {}, ...cells.map((cell) => element(kind, {}, cell)));
}

/** The texts in row order. @param {PageData["texts"]["texts"]} coded */
function decoded(coded) {
  /** @type {string[]} */
  const texts = [];
  let before = "";
  for (const [place, common, rest] of coded) {
    before = before.slice(0, common) + rest;
    texts[place] = before;
  }
  return texts;
}

/** The heaviest texts, and the others on request. @param {PageData["texts"]} texts */
export function textsTable({ columns, rows, texts }) {
  const words = decoded(texts);
  const lines = rows.map((cells, place) => [...cells, words[place]]);
  const lineOf = (/** @type {string[]} */ cells) => tableRow(cells, "td");
  const head = element("thead", {}, tableRow(columns, "th"));
  const body = element("tbody", {}, ...lines.slice(0, MOST_TEXTS).map(lineOf));
  const table = element("table", {}, head, body);
  if (lines.length <= MOST_TEXTS) return [table];
  const showAll = `Show all ${lines.length.toLocaleString("en")} texts`;
  const more = element("button", { type: "button" }, showAll);
  more.addEventListener("click", () => {
    body.append(...lines.slice(MOST_TEXTS).map(lineOf));
    more.remove();
  });
  return [table, more];
}
