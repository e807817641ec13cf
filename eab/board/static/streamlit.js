// The board as a Streamlit component (version 2): Streamlit calls this with every message. A tour
// of the board has six stops, each with a part of the board and what it shows; it starts by itself
// on the first visit, and later only when requested in Help.

/** @import { Message, Send, StreamlitArguments, WhatIfRequest } from "./types.d.ts" */
import { Board } from "./board.js";
import { element, wordButton } from "./elements.js";
import { Shown } from "./what_if_messages.js";

const TAKEN = "eab-tour"; // in the browser's storage

/** Each stop: the selectors of the part and of the panel for the card, the name, and the words. */
const STOPS = [
  [
    ".tree-panel",
    ".entropy-panel",
    "The tree of texts",
    "Where the model was unsure, the text forks. A percentage beside a text is its weight.",
  ],
  [
    ".tree-panel",
    ".entropy-panel",
    "A token",
    "Choose a word, by a click or a tap or with the arrow keys: its probability, its entropy and the " +
      "other candidates appear.",
  ],
  [
    ".transport:not(.tools)",
    ".memory-panel",
    "The cursor",
    "Play the run, or go through it step by step. All charts show the same step.",
  ],
  [
    ".entropy-panel",
    ".memory-panel",
    "Entropy and threshold",
    "One line per text: the higher, the less sure. Drag the dashed line to see the tree at another " +
      "threshold; the model is not run again.",
  ],
  [
    ".memory-panel",
    ".entropy-panel",
    "The KV cache",
    "The bytes that the texts share, those that each has alone, and what separate caches would take.",
  ],
  [
    ".tools",
    ".entropy-panel",
    "Find, tables, help",
    "Search the tree, read it as a table, or show it larger for a class. Help explains the charts " +
      "and lists all keys; there you can take this tour again.",
  ],
];

export class Tour {
  /**
   * @param {HTMLElement} board
   * @param {HTMLElement} help the page with a button to take the tour again
   * @param {Send} send
   */
  constructor(board, help, send) {
    this.board = board;
    this.send = send;
    this.stop = 0;
    this.name = element("h2");
    this.words = element("p");
    this.count = element("span", { class: "count" });
    this.skip = wordButton("Skip", "end the tour", () => this.end());
    this.next = wordButton("Next", "the next stop of the tour", () => this.goOn());
    const buttons = element("div", { class: "tour-buttons" }, this.count, this.skip, this.next);
    const card = { class: "tour", "aria-label": "Tour", hidden: "" };
    this.root = element("section", card, this.name, this.words, buttons);
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    const again = wordButton("Take the tour", "six stops on the board", () => this.begin());
    help.prepend(again);
  }

  /** Start by itself on the first visit, but leave the focus where it is. */
  offer() {
    if (isTaken()) return;
    noteTaken();
    this.show(0);
  }

  /** Start on request. */
  begin() {
    this.send("closeDrawer");
    this.show(0);
    this.next.focus();
  }

  goOn() {
    if (this.stop + 1 === STOPS.length) return this.end();
    this.show(this.stop + 1);
    for (const part of [this.board.querySelector(".toured"), this.root])
      part?.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} stop */
  show(stop) {
    this.stop = stop;
    const [part, , name, words] = STOPS[stop];
    const isLast = stop + 1 === STOPS.length;
    this.name.textContent = name;
    this.words.textContent = words;
    this.count.textContent = `${stop + 1} of ${STOPS.length}`;
    this.skip.hidden = isLast;
    this.next.textContent = isLast ? "Done" : "Next";
    this.next.setAttribute("aria-label", isLast ? "Done: end the tour" : "Next stop of the tour");
    this.root.hidden = false;
    this.mark(part);
    this.place();
  }

  /** Move the card into a drawer that was opened, and back after it was closed. */
  follow() {
    const isOpen = this.board.querySelector(".drawer:not([hidden])") !== null;
    const isInDrawer = this.root.closest(".drawer") !== null;
    if (!this.root.hidden && isOpen !== isInDrawer) this.place();
  }

  /**
   * Put the card on a panel that is not being explained, so it hides neither tree nor scrubber; on
   * a phone, above the part itself, which may be higher than the screen; above the text of an open
   * drawer, which covers the other panels.
   */
  place() {
    const [part, beside] = STOPS[this.stop];
    const hadFocus = this.root.matches(":focus-within");
    this.board.querySelector(beside)?.append(this.root);
    const isInColumn = getComputedStyle(this.root).position === "static";
    if (isInColumn) this.board.querySelector(part)?.closest(".panel")?.before(this.root);
    this.board.querySelector(".drawer:not([hidden]) > header")?.after(this.root);
    if (hadFocus) this.next.focus();
  }

  /** @param {string} part the selector of the part to mark; "" for none */
  mark(part) {
    for (const marked of this.board.querySelectorAll(".toured")) {
      marked.classList.remove("toured");
    }
    if (part) this.board.querySelector(part)?.classList.add("toured");
  }

  end() {
    const hadFocus = this.root.matches(":focus-within");
    this.root.hidden = true;
    this.mark("");
    if (hadFocus) this.send("takeFocus");
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    event.stopPropagation(); // Space and Enter are for the buttons, not for the board
    if (event.key === "Escape") this.end();
  }
}

function isTaken() {
  try {
    return localStorage.getItem(TAKEN) !== null;
  } catch {
    return true; // without storage, it would start on every visit
  }
}

function noteTaken() {
  localStorage.setItem(TAKEN, "yes");
}

/** @param {StreamlitArguments["parentElement"]} host */
function newBoard(host) {
  const board = new Board(host);
  board.takeKeysOf(document);
  board.onLook = () => {
    tellLook(board);
    host.__tour?.follow();
  };
  const { signal } = board.closing;
  document.addEventListener("eab-look-asked", () => tellLook(board), { signal });
  document.addEventListener("eab-lead", () => goAlong(board), { signal });
  return board;
}

// A class leads the boards of other tabs (app/widgets/static/class.js).

/** @param {Board} board */
function tellLook({ store: { run }, view }) {
  if (run.key === null) return;
  const cursor = view.follow ? null : view.cursor;
  const token = view.selection.path === null ? null : [view.selection.path, view.selection.token];
  document.dispatchEvent(new CustomEvent("eab-look", { detail: { run: run.key, cursor, token } }));
}

/** @param {Board} board */
function goAlong(board) {
  const lead = document.documentElement.dataset.eabLead;
  if (lead) board.guidance.lead(JSON.parse(lead));
}

/** @param {StreamlitArguments} component */
export default function ({ data, parentElement, setTriggerValue }) {
  /** @type {Message | null} */
  const message = data ? JSON.parse(new TextDecoder().decode(data)) : null;
  parentElement.__board ??= newBoard(parentElement);
  const board = parentElement.__board;
  const { run, offers = {} } = message ?? {};
  board.onMissed = (since) => setTriggerValue("missed", { since });
  board.onGrow = (address) => setTriggerValue("grow", address);
  board.onGoOn = () => setTriggerValue("go_on", { run });
  board.onRunAt = (threshold) => setTriggerValue("run_at", { run, threshold });
  board.onLabel = (rules) => setTriggerValue("label", { run, rules });
  board.onExtend = (asked) => setTriggerValue("extend", { run, ...asked });
  board.onGraft = () => setTriggerValue("graft", !offers.graft);
  if (message) {
    const tell = (/** @type {WhatIfRequest} */ asked) => {
      setTriggerValue("what_if", { run, ...asked });
    };
    parentElement.__shown ??= new Shown(board);
    parentElement.__shown.update(message, message.recorded, tell).then(() => goAlong(board));
  }
  const beginsByItself = offers.tour ?? null;
  if (beginsByItself !== null && !parentElement.__tour) {
    parentElement.__tour = new Tour(board.root, board.help, board.send);
    if (beginsByItself) parentElement.__tour.offer();
  }
  return () => {
    if (board.root.isConnected) return; // Streamlit also cleans up after an earlier call
    board.close();
    delete parentElement.__board;
    delete parentElement.__shown;
    delete parentElement.__tour;
  };
}
