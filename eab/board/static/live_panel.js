// Runs of the story model on a page without Python: a prompt, Run and Stop. The model runs in a
// worker (eab/live/static/worker.js, which describes the messages).

/** @import { Board } from "./board.js" */
/** @import { Message, RunEvent, RunPath, TokenAddress } from "./types.d.ts" */
import { element, wordButton } from "./elements.js";
import { Feed } from "./messages.js";
import { showRun } from "./page_run.js";
import { bytes } from "./text.js";

/**
 * @typedef {{ url: string, base?: string, files?: Record<string, Uint8Array> }} Source
 * The URL of the worker's script; and the model: the URL of its folder, or its files.
 */

const MOST_SEEDS = 2 ** 32;
const OFFERS = { grow: true, run_at: true };
const NOT_LOADED =
  "The story model cannot run here: the page may not load it, or it is damaged. The recorded runs work.";

export class LivePanel {
  /**
   * @param {HTMLElement} host @param {Board} board
   * @param {() => Promise<Source>} source of the worker, when it is first needed
   * @param {(title: string) => void} onBegin what the page does when a run begins
   */
  constructor(host, board, source, onBegin) {
    this.board = board;
    this.source = source;
    this.onBegin = onBegin;
    /** @type {Promise<{ worker: Worker, model: object }> | null} */
    this.started = null;
    /** The run that is live or was the last one. @type {Feed | null} */
    this.feed = null;
    this.runs = 0;
    this.input = element("input", { "aria-label": "Prompt", value: host.dataset.prompt ?? "" });
    this.go = element("button", { type: "submit", class: "primary" }, "Run");
    this.stop = wordButton("Stop", "Stop after this step and keep the result", () => this.end());
    this.status = element("span", { role: "status" });
    this.stop.hidden = true;
    const form = element("form", {}, this.input, this.go, this.stop, this.status);
    form.onsubmit = (event) => {
      event.preventDefault();
      if (!this.input.value.trim())
        return this.tell("Write a few words for the model to continue.");
      const seed = Math.floor(Math.random() * MOST_SEEDS);
      this.begin(this.input.value, { type: "run", prompt: this.input.value, settings: { seed } });
    };
    host.append(form);
    board.onGrow = (address) => this.grow(address);
    board.onRunAt = (threshold) => this.runAt(threshold);
  }

  /** @param {string} prompt @param {object} asked of the worker */
  begin(prompt, asked) {
    this.runs += 1;
    this.feed = new Feed(`live ${this.runs}`, "live");
    this.onBegin(prompt);
    this.board.onMissed = (since) => this.resend(since);
    this.tell(this.started ? "Reading the prompt" : "Loading the story model …");
    this.running(true);
    this.post({ ...asked, id: this.feed.key });
  }

  /** @param {object} message to the worker */
  async post(message) {
    this.started ??= this.start();
    try {
      const { worker, model } = await this.started;
      worker.postMessage({ ...message, ...model });
    } catch {
      this.started = null;
      this.fail(NOT_LOADED);
    }
  }

  async start() {
    const { url, ...model } = await this.source();
    const worker = new Worker(url);
    worker.onmessage = ({ data }) => this.take(data);
    worker.onerror = () => this.fail(NOT_LOADED);
    return { worker, model };
  }

  /** @param {Record<string, any>} said by the worker */
  take({ type, events, loaded, total, message, id }) {
    if (type === "progress") {
      return this.tell(`Loading the story model: ${bytes(loaded)} of ${bytes(total)}`);
    }
    if (id !== this.feed?.key) return;
    if (type === "error") this.fail(`${message[0].toUpperCase()}${message.slice(1)}.`);
    else if (this.feed) this.show(this.feed, events);
  }

  /** @param {Feed} feed @param {RunEvent[]} events */
  show(feed, events) {
    const message = feed.message(events);
    const { run } = feed;
    if (!message) return this.tell(`The most likely text first: token ${run.probe.length}`);
    if (!run.ended) {
      this.tell(`Step ${run.steps.length} of ${run.started.config.max_new_tokens}`);
      return this.board.update(message);
    }
    this.running(false);
    this.tell(run.ended.message ?? "");
    feed.mode = "replay";
    feed.resend();
    const whole = /** @type {Message} */ (feed.message([]));
    showRun(this.board, { ...whole, offers: OFFERS }, run.events);
  }

  /** @param {number} since */
  resend(since) {
    this.feed?.resend(since);
    const message = this.feed?.message([]);
    if (message) this.board.update(message);
  }

  /** Another run is shown: leave this one. */
  leave() {
    this.end();
    this.feed = null;
    this.running(false);
    this.tell("");
  }

  end() {
    this.started?.then(({ worker }) => worker.postMessage({ type: "stop" }));
  }

  /** Grow a run from a token of the shown one. @param {TokenAddress} address */
  grow({ run: key, path, token, candidate }) {
    const run = this.feed?.run;
    if (!run || key !== this.feed?.key) return;
    const { prompt_tokens: ids, continued: kept = 0 } = run.started;
    const { parent, tokens } = run.paths[path];
    const before = [...idsOf(run.paths, parent), ...tokens.slice(0, token).map(({ id }) => id)];
    const last = candidate < 0 ? tokens[token].id : tokens[token].candidates[candidate][0];
    const continued = [...ids.slice(ids.length - kept), ...before, last];
    const { started } = run;
    this.begin(started.prompt, { type: "grow", started, continued, settings: started.config });
  }

  /** Run the shown prompt again at another threshold. @param {number} threshold nats */
  runAt(threshold) {
    const run = this.feed?.run;
    if (!run) return;
    const { prompt, config } = run.started;
    const settings = { ...config, entropy_threshold: threshold, threshold_unit: "nats" };
    this.begin(prompt, { type: "run", prompt, settings });
  }

  /** @param {string} words */
  fail(words) {
    this.running(false);
    this.tell(words);
  }

  /** @param {boolean} isRunning */
  running(isRunning) {
    this.go.disabled = isRunning;
    this.stop.hidden = !isRunning;
  }

  /** @param {string} words */
  tell(words) {
    this.status.textContent = words;
  }
}

/** Token ids from the root to the end of a path. @param {RunPath[]} paths @param {number} path @returns {number[]} */
function idsOf(paths, path) {
  if (path < 0) return [];
  return [...idsOf(paths, paths[path].parent), ...paths[path].tokens.map(({ id }) => id)];
}
