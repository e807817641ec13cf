// A finished run on its board, which recomputes it at other settings by itself. On a page without
// Python (eab/share/exports.py), the table of its texts, too.

/** @import { Board } from "./board.js" */
/** @import { Message, PageData, WhatIfRequest } from "./types.d.ts" */
import { wordButton } from "./elements.js";
import { counted } from "./formatting.js";
import { boardMessage, fold } from "./messages.js";
import { table } from "./table.js";
import { WhatIf } from "./what_if_messages.js";

const MAX_ROWS = 200; // of the table of texts at first
const PAUSE_MS = 300; // after which the user has chosen a threshold
/** @type {WhatIfRequest} */
const AS_RECORDED = { threshold: null, r: null };

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
  const text = atob(packed ?? "");
  const bytes = new Uint8Array(text.length); // a loop, because `Uint8Array.from` takes ten times as long
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream);
}

/** Show a run on the board and around it. @param {Board} board @param {PageData} page */
export function showPage(board, { title, about, texts, message, events }) {
  showTitle(title);
  byId("about").textContent = about;
  byId("texts-title").hidden = false;
  showTexts(texts, MAX_ROWS);
  board.onMissed = null;
  const made = message.paths ? {} : boardMessage(fold(events));
  const whole = /** @type {Message} */ ({ ...made, ...message });
  showRun(board, whole, events.length ? new WhatIf(events) : null);
}

/**
 * The table of texts, heaviest first; of very many, the others follow at a click.
 * @param {PageData["texts"]} texts @param {number} count of rows
 */
function showTexts({ sentence, columns, rows }, count) {
  byId("texts").replaceChildren(table(sentence, columns, rows.slice(0, count)));
  if (rows.length <= count) return;
  const words = `All ${counted(rows.length, "text")}`;
  const more = wordButton(words, "Show all texts in the table", () =>
    showTexts({ sentence, columns, rows }, rows.length),
  );
  byId("texts").append(more);
}

/** Show a title, and nothing else around the board. @param {string} title */
export function showTitle(title) {
  document.title = title;
  byId("title").textContent = title;
  for (const id of ["about", "texts"]) byId(id).replaceChildren();
  byId("texts-title").hidden = true;
}

/**
 * Show a run, and recompute it when the user moves its threshold.
 * @param {Board} board @param {Message} message
 * @param {WhatIf | null} whatIf of its events; null: it cannot be recomputed here
 */
export function showRun(board, message, whatIf, request = message.asked ?? AS_RECORDED) {
  const show = (/** @type {WhatIfRequest} */ at) => {
    board.update(whatIf?.message(message, at) ?? message);
  };
  board.onWhatIf = show;
  show(request);
  return show;
}

/** Shows the messages of a host in Python, which sends the events of a finished run once. */
export class Shown {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.key = ""; // of the run whose events are known
    this.packed = "";
    /** @type {WhatIf | null} */
    this.whatIf = null;
    /** @type {Message | null} */
    this.latest = null;
    /** What the user asked for, until the host is told. @type {WhatIfRequest | undefined} */
    this.asked = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.pause = undefined;
  }

  /**
   * @param {Message} message
   * @param {string | undefined} packed events of the run, if this message has them
   * @param {(request: WhatIfRequest) => void} [tell] the host what the user asks for
   */
  async update(message, packed, tell) {
    this.latest = message;
    const key = `${message.run} ${message.version}`;
    if (key !== this.key) Object.assign(this, { key, packed: "", whatIf: null, asked: undefined });
    if (packed && packed !== this.packed) {
      const whatIf = new WhatIf(await unzipped(packed).json());
      if (this.key === key) Object.assign(this, { packed, whatIf });
    }
    if (this.latest !== message || this.board.closing.signal.aborted) return;
    const show = showRun(this.board, message, this.whatIf, this.asked);
    if (tell) this.board.onWhatIf = (request) => this.ask(request, show, tell);
  }

  /**
   * Show other settings at once, and tell the host when the user pauses.
   * @param {WhatIfRequest} request
   * @param {(request: WhatIfRequest) => void} show @param {(request: WhatIfRequest) => void} tell
   */
  ask(request, show, tell) {
    if (!this.whatIf) return tell(request);
    this.asked = this.whatIf.allowed(request);
    show(this.asked);
    clearTimeout(this.pause);
    this.pause = setTimeout(() => {
      if (this.asked) tell(this.asked);
      this.asked = undefined;
    }, PAUSE_MS);
  }
}
