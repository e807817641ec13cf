// The board as a page of its own: one run, in the data block of the page.

/** @import { PageData } from "./types.d.ts" */
import { Board } from "./board.js";
import { element } from "./elements.js";

/** @param {string} id @returns {HTMLElement} */
function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no element #${id}`);
  return found;
}

/** @param {string[]} cells @param {"th" | "td"} kind */
function tableRow(cells, kind) {
  const row = element("tr");
  row.append(...cells.map((cell) => element(kind, {}, cell)));
  return row;
}

/** @param {PageData["texts"]} texts */
function textsTable({ columns, lines }) {
  const head = element("thead");
  head.append(tableRow(columns, "th"));
  const body = element("tbody");
  body.append(...lines.map((cells) => tableRow(cells, "td")));
  const table = element("table");
  table.append(head, body);
  return table;
}

/** @type {PageData} */
const page = JSON.parse(byId("run").textContent ?? "");
document.title = page.title;
byId("title").textContent = page.title;
byId("about").textContent = page.about;
byId("texts-sentence").textContent = page.texts.sentence;
byId("texts").append(textsTable(page.texts));
const board = new Board(byId("board"));
board.update(page.message);
board.takeKeysOf(document);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => board.redraw());
