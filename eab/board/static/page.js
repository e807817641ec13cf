// The board as a page of its own: one run, told once, by the data block of the page.

import { Board } from "./board.js";
import { element } from "./svg.js";

function textsTable({ columns, lines }) {
  const table = element("table");
  const line = (cells, kind) => {
    const row = element("tr");
    cells.forEach((cell) => row.append(element(kind, {}, cell)));
    return row;
  };
  const [head, body] = [element("thead"), element("tbody")];
  head.append(line(columns, "th"));
  body.append(...lines.map((cells) => line(cells, "td")));
  table.append(head, body);
  return table;
}

const page = JSON.parse(document.getElementById("run").textContent);
document.title = page.title;
document.getElementById("title").textContent = page.title;
document.getElementById("about").textContent = page.about;
document.getElementById("texts-sentence").textContent = page.texts.sentence;
document.getElementById("texts").append(textsTable(page.texts));
const board = new Board(document.getElementById("board"));
board.update(page.message);
board.root.focus({ preventScroll: true });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => board.retheme());
