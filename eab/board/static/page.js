// The board on a page without Python. Either one run, stored in the page's data block
// (eab/share/exports.py); or the explorer as static files (eab/share/site.py): the recorded runs,
// each in a data block of the page. On both, the story model makes runs, if the page has its files:
// a prompt, Run and Stop. The model runs in a worker (eab/share/live/static/worker.js, which
// describes the messages).

/** @import { Message, PageData, RunEvent, RunPath, TokenAddress } from "./types.d.ts" */
import { Board } from "./board.js";
import { element, wordButton } from "./elements.js";
import { bytes, counted } from "./formatting.js";
import { boardMessage, Feed, fold } from "./messages.js";
import { table } from "./text_views.js";
import { showRun, unzipped, WhatIf } from "./what_if_messages.js";

const MAX_ROWS = 200; // of the table of texts at first

/** @param {string} id @returns {HTMLElement} */
function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`The page has no element #${id}`);
  return node;
}

/** The data of a page. @param {string | null} packed @returns {Promise<PageData>} */
async function unpacked(packed) {
  return unzipped(packed).json();
}

/**
 * The table of texts, heaviest first; of very many, the others follow at a click.
 * @param {PageData["texts"]} texts
 */
function showTexts({ sentence, columns, rows }) {
  byId("texts").replaceChildren(table(sentence, columns, rows.slice(0, MAX_ROWS)));
  if (rows.length <= MAX_ROWS) return;
  const words = `All ${counted(rows.length, "text")}`;
  const more = wordButton(words, "Show all texts in the table", () => {
    const all = table(sentence, columns, rows);
    all.tabIndex = -1; // it takes the focus of the button, which is gone
    byId("texts").replaceChildren(all);
    all.focus({ preventScroll: true });
  });
  byId("texts").append(more);
}

/** Show a run on the board and around it. @param {Board} board @param {PageData} page */
function showPage(board, { title, about, texts, message, events }) {
  showTitle(title);
  byId("about").textContent = about;
  byId("texts-title").hidden = false;
  showTexts(texts);
  board.onMissed = null;
  const made = message.paths ? {} : boardMessage(fold(events));
  const whole = /** @type {Message} */ ({ ...made, ...message });
  showRun(board, whole, events.length ? new WhatIf(events) : null);
}

/** Show a title, and nothing else around the board. @param {string} title */
function showTitle(title) {
  document.title = title;
  byId("title").textContent = title;
  for (const id of ["about", "texts"]) byId(id).replaceChildren();
  byId("texts-title").hidden = true;
}

/**
 * @typedef {{ url: string, base?: string, files?: Record<string, Uint8Array> }} Source
 * The URL of the worker's script; and the model: the URL of its folder, or its files.
 */

const MOST_SEEDS = 2 ** 32;
const OFFERS = { grow: true, run_at: true };
const NO_WORKER =
  "The story model cannot run here: the browser could not load its script. The recorded runs work.";

class LivePanel {
  /**
   * @param {HTMLElement} host @param {Board} board
   * @param {() => Promise<Source>} source of the worker, when it is first needed
   * @param {(title: string) => void} onBegin what the page does when a run begins
   * @param {string} refusal why the model cannot run here; empty if it can
   */
  constructor(host, board, source, onBegin, refusal = "") {
    this.board = board;
    this.source = source;
    this.onBegin = onBegin;
    this.refusal = refusal;
    /** @type {Promise<{ worker: Worker, model: object }> | null} */
    this.started = null;
    /** The run that the worker makes, which is not shown before it has begun. @type {Feed | null} */
    this.asked = null;
    /** The run on the board, if it is one of these. @type {Feed | null} */
    this.shown = null;
    this.runs = 0;
    this.input = element("input", { "aria-label": "Prompt", value: host.dataset.prompt ?? "" });
    this.go = element("button", { type: "submit", class: "primary" }, "Run");
    this.stop = wordButton("Stop", "Stop after this step and keep the result", () => this.end());
    this.status = element("span", { role: "status" });
    const form = element("form", {}, this.input, this.go, this.stop, this.status);
    form.onsubmit = (event) => {
      event.preventDefault();
      this.submit();
    };
    host.prepend(form);
    board.onGrow = (address) => this.grow(address);
    board.onRunAt = (threshold) => this.runAt(threshold);
    this.finish(refusal);
  }

  submit() {
    const prompt = this.input.value;
    if (!prompt.trim()) return this.tell("Write a few words for the model to continue.");
    const seed = Math.floor(Math.random() * MOST_SEEDS);
    this.begin({ prompt, settings: { seed } });
  }

  /** @param {object} request of a run (eab/share/live/static/loading.js) */
  begin(request) {
    this.runs += 1;
    this.asked = new Feed(`live ${this.runs}`, "live");
    this.running(true);
    this.tell(this.started ? "Reading the prompt" : "Loading the story model …");
    this.post({ type: "run", ...request, id: this.asked.key });
  }

  /** @param {object} message to the worker, which is started when it is first needed */
  async post(message) {
    this.started ??= this.start();
    try {
      const { worker, model } = await this.started;
      worker.postMessage({ ...message, ...model });
    } catch {
      this.refuse();
    }
  }

  async start() {
    const { url, ...model } = await this.source();
    const worker = new Worker(url);
    worker.onmessage = ({ data }) => this.take(data);
    worker.onerror = () => this.refuse();
    return { worker, model };
  }

  /** There is no worker; the next run tries again. */
  refuse() {
    this.started?.then(({ worker }) => worker.terminate()).catch(() => {});
    this.started = null;
    this.finish(this.refusal || NO_WORKER);
  }

  /** @param {Record<string, any>} said by the worker */
  take({ type, events, loaded, total, message, id }) {
    if (!this.asked) return;
    if (type === "progress") {
      return this.tell(`Loading the story model: ${bytes(loaded)} of ${bytes(total)}`);
    }
    if (id !== this.asked.key) return;
    if (type === "error") this.finish(`${asSentence(message)}.`);
    else this.show(this.asked, events);
  }

  /** @param {Feed} feed @param {RunEvent[]} events */
  show(feed, events) {
    const message = feed.message(events);
    const { run } = feed;
    if (!message) return this.tell(`The most likely text first: token ${run.probe.length}`);
    if (this.shown !== feed) {
      this.shown = feed;
      this.board.onMissed = (since) => this.resend(since);
      this.onBegin(run.started.prompt);
    }
    if (!run.ended) {
      this.tell(`Step ${run.steps.length} of ${run.started.config.max_new_tokens}`);
      return this.board.update(message);
    }
    this.finish(run.ended.message ?? "");
    feed.mode = "replay";
    feed.resend();
    const whole = /** @type {Message} */ (feed.message([]));
    showRun(this.board, { ...whole, offers: OFFERS }, new WhatIf(run.events));
  }

  /** @param {number} since */
  resend(since) {
    this.shown?.resend(since);
    const message = this.shown?.message([]);
    if (message) this.board.update(message);
  }

  /** Another run is shown: leave this one. */
  leave() {
    this.end();
    this.shown = null;
    this.finish(this.refusal);
  }

  /** Stop; of a run that has not begun nothing is kept. */
  end() {
    this.started?.then(({ worker }) => worker.postMessage({ type: "stop" })).catch(() => {});
    if (this.asked && this.asked !== this.shown) this.finish("Stopped before the first token.");
  }

  /** Grow a run from a token of the shown one. @param {TokenAddress} address */
  grow({ run: key, path, token, candidate }) {
    const run = this.shown?.run;
    if (!run || key !== this.shown?.key) return;
    const { prompt, prompt_tokens: ids, continued: kept = 0, config: settings } = run.started;
    const { parent, tokens } = run.paths[path];
    const before = [...idsOf(run.paths, parent), ...tokens.slice(0, token).map(({ id }) => id)];
    const last = candidate < 0 ? tokens[token].id : tokens[token].candidates[candidate][0];
    const tokenIds = ids.slice(0, ids.length - kept);
    const continued = [...ids.slice(ids.length - kept), ...before, last];
    this.begin({ prompt, settings, tokenIds, continued });
  }

  /** Run the shown prompt again at another threshold. @param {number} threshold nats */
  runAt(threshold) {
    const run = this.shown?.run;
    if (!run) return;
    const { prompt, config } = run.started;
    const settings = { ...config, entropy_threshold: threshold, threshold_unit: "nats" };
    this.begin({ prompt, settings });
  }

  /** Nothing is made any more. @param {string} words why */
  finish(words) {
    this.asked = null;
    this.running(false);
    this.tell(words);
  }

  /** Either Run or Stop is there, in one place. @param {boolean} isRunning */
  running(isRunning) {
    const hasFocus = this.stop.matches(":focus");
    this.go.disabled = isRunning; // Enter in the prompt would press it though it is hidden
    this.go.hidden = isRunning;
    this.stop.hidden = !isRunning;
    if (hasFocus) this.go.focus();
  }

  /** @param {string} words */
  tell(words) {
    this.status.textContent = words;
  }
}

/** With a capital, unless a file is named first. @param {string} words */
function asSentence(words) {
  return words.replace(/^[a-z](?=[a-z]* )/, (letter) => letter.toUpperCase());
}

/** Token ids from the root to the end of a path. @param {RunPath[]} paths @param {number} path @returns {number[]} */
function idsOf(paths, path) {
  if (path < 0) return [];
  return [...idsOf(paths, paths[path].parent), ...paths[path].tokens.map(({ id }) => id)];
}

/** The page of one run. @param {Board} board */
async function showStored(board) {
  const page = await unpacked(byId("run").textContent);
  showPage(board, page);
  const live = document.getElementById("live");
  if (!live) return;
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

const FROM_DISK =
  "The story model runs when the page comes from a web server: start one in this folder with " +
  "“python -m http.server”. The recorded runs work.";

/** The page with a gallery of recorded runs. */
class Site {
  /** @param {Board} board @param {HTMLAnchorElement[]} cards of the recorded runs */
  constructor(board, cards) {
    this.board = board;
    this.cards = cards;
    for (const card of cards) card.addEventListener("click", (event) => this.onCard(card, event));
    addEventListener("popstate", () => this.openAddressed());
    const { worker: url = "", model = "" } = byId("live").dataset;
    const base = new URL(model, location.href).href;
    this.panel = new LivePanel(
      byId("live"),
      board,
      async () => ({ url, base }),
      (title) => {
        this.mark("");
        byId("shows").textContent = "";
        showTitle(title);
      },
      location.protocol === "file:" ? FROM_DISK : "",
    );
  }

  /** Name the run that is shown; "": none of the gallery. @param {string} name */
  mark(name) {
    for (const card of this.cards) {
      const isShown = card.dataset.run === name;
      card.toggleAttribute("aria-current", isShown);
      if (isShown) byId("shows").textContent = card.title;
    }
  }

  /** @param {string} name of a recorded run */
  async open(name) {
    const blockOf = () => document.getElementById(`run-${name}`);
    if (!blockOf() && document.readyState === "loading") {
      await new Promise((resolve) => addEventListener("DOMContentLoaded", resolve, { once: true }));
    }
    const block = blockOf();
    if (!block) throw new Error(`There is no recorded run “${name}”. Choose one of those above.`);
    const page = await unpacked(block.textContent);
    this.panel.leave();
    this.mark(name);
    showPage(this.board, page);
  }

  /** Open the run of the address; if there is none, the first. */
  async openAddressed() {
    const asked = new URLSearchParams(location.search).get("run");
    const first = this.cards[0].dataset.run ?? "";
    try {
      await this.open(asked ?? first);
    } catch (error) {
      await this.open(first);
      byId("shows").textContent = error instanceof Error ? error.message : String(error);
    }
  }

  /** Open a run without loading the page again. @param {HTMLAnchorElement} card @param {MouseEvent} event */
  onCard(card, event) {
    if (event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    try {
      history.pushState(null, "", card.href);
    } catch {
      // a page that was opened from the disk keeps its address
    }
    this.open(card.dataset.run ?? "");
  }
}

const board = new Board(byId("board"));
board.takeKeysOf(document);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => board.redraw());
const cards = /** @type {HTMLAnchorElement[]} */ ([...document.querySelectorAll("#gallery a")]);
if (cards.length) {
  new Site(board, cards).openAddressed(); // the first run stands before this script, others after it
} else {
  showStored(board).catch((error) => {
    byId("about").textContent = error.message;
  });
}
