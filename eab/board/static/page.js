// The board as a standalone page: one run, stored in the page's data block.

/** @import { PageData } from "./types.d.ts" */
import { Board } from "./board.js";
import { element } from "./elements.js";

const MOST_TEXTS = 100; // shown at first

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
function textsTable({ columns, rows, texts }) {
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

/** @type {PageData} */
const page = JSON.parse(byId("run").textContent ?? "");
document.title = page.title;
byId("title").textContent = page.title;
byId("about").textContent = page.about;
byId("texts-sentence").textContent = page.texts.sentence;
byId("texts").append(...textsTable(page.texts));
const board = new Board(byId("board"));
board.update(page.message);
board.takeKeysOf(document);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => board.redraw());
