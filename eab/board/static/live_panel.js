// Runs of the story model on a page without Python: a prompt, Run and Stop. The model runs in a
// worker (eab/site/live). To the worker go
//
//     { prompt, settings, seed, started, continued } or { stop: true }
//
// and from it come { events }, those of one step after the other, { progress: { share, words } } and
// { error }. `settings` are those that differ from the start; a run that grows from a token has the
// header of its source and the token ids that come before its own.

/** @import { Board } from "./board.js" */
/** @import { Message, RunEvent, RunPath, TokenAddress } from "./types.d.ts" */
import { element, wordButton } from "./elements.js";
import { Feed } from "./messages.js";
import { showRun } from "./page_run.js";

const MOST_SEEDS = 2 ** 32;
const OFFERS = { grow: true, run_at: true };

export class LivePanel {
  /**
   * @param {HTMLElement} host @param {Board} board @param {string} url of the worker's script
   * @param {(title: string) => void} onBegin what the page does when a run begins
   */
  constructor(host, board, url, onBegin) {
    this.board = board;
    this.url = url;
    this.onBegin = onBegin;
    /** @type {Worker | null} */
    this.worker = null;
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
      this.begin(this.input.value, {});
    };
    host.append(form);
    board.onGrow = (address) => this.grow(address);
    board.onRunAt = (threshold) => this.runAt(threshold);
  }

  /** @param {string} prompt @param {Record<string, unknown>} settings @param {object} [source] */
  begin(prompt, settings, source = {}) {
    if (!prompt.trim()) return this.tell("Write a few words for the model to continue.");
    this.runs += 1;
    this.feed = new Feed(`live ${this.runs}`, "live");
    this.onBegin(prompt);
    this.board.onMissed = (since) => this.resend(since);
    this.tell("Loading the story model …");
    this.running(true);
    const seed = "seed" in settings ? settings.seed : Math.floor(Math.random() * MOST_SEEDS);
    this.started().postMessage({ prompt, settings, seed, ...source });
  }

  /** The worker, started when it is first needed. */
  started() {
    if (this.worker) return this.worker;
    this.worker = new Worker(this.url, { type: "module" });
    this.worker.onmessage = ({ data }) => this.take(data);
    this.worker.onerror = () =>
      this.fail(
        "The story model cannot run here: the browser does not let the page load it. The recorded " +
          "runs work.",
      );
    return this.worker;
  }

  /** @param {{ events?: RunEvent[], progress?: { share: number, words: string }, error?: string }} said */
  take({ events, progress, error }) {
    if (error) return this.fail(error);
    if (progress) this.tell(`${progress.words}: ${Math.round(100 * progress.share)}%`);
    if (events && this.feed) this.show(this.feed, events);
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

  end() {
    this.worker?.postMessage({ stop: true });
  }

  /** Grow a run from a token of the shown one. @param {TokenAddress} address */
  grow({ run: key, path, token, candidate }) {
    const run = this.feed?.run;
    if (!run || key !== this.feed?.key) return;
    const { prompt_tokens: ids, continued: kept = 0 } = run.started;
    const own = idsUpTo(run.paths, path, token, candidate);
    const continued = [...ids.slice(ids.length - kept), ...own];
    const { prompt, config } = run.started;
    this.begin(prompt, config, { started: run.started, continued });
  }

  /** Run the shown prompt again at another threshold. @param {number} threshold nats */
  runAt(threshold) {
    const run = this.feed?.run;
    if (!run) return;
    const nats = { entropy_threshold: threshold, threshold_unit: "nats" };
    this.begin(run.started.prompt, { ...run.started.config, ...nats });
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

/**
 * Token ids from the root to a token of a path, or to a candidate in its place.
 * @param {RunPath[]} paths @param {number} path @param {number} token @param {number} candidate -1: itself
 * @returns {number[]}
 */
function idsUpTo(paths, path, token, candidate) {
  const { parent, tokens } = paths[path];
  const own = tokens.slice(0, token).map(({ id }) => id);
  const last = candidate < 0 ? tokens[token].id : tokens[token].candidates[candidate][0];
  const before = parent < 0 ? [] : idsUpTo(paths, parent, paths[parent].tokens.length - 1, -1);
  return [...before, ...own, last];
}
