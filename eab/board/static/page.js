// The board as a page of its own: one run, in the data block of the page.

/** @import { PageData } from "./types.d.ts" */
import { Board } from "./board.js";
import { element } from "./elements.js";

/** @param {string} id @returns {HTMLElement} */
function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`The page has no element #${id}`);
  return node;
}

/** @param {string[]} cells @param {"th" | "td"} kind */
function tableRow(cells, kind) {
  return element("tr", {}, ...cells.map((cell) => element(kind, {}, cell)));
}

/** @param {PageData["texts"]} texts */
function textsTable({ columns, lines }) {
  const head = element("thead", {}, tableRow(columns, "th"));
  const body = element("tbody", {}, ...lines.map((cells) => tableRow(cells, "td")));
  return element("table", {}, head, body);
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
