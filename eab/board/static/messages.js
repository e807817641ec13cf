// Messages to the board, made from events in the browser: what eab/board/messages.py does in
// Python.

/** @import { Message, PathMessage, RunEvent, RunPath, RunToken, StepMessage, TokenTuple } from "./types.d.ts" */
import {
  captions,
  captionsNow,
  fileStem,
  limitSentence,
  originWords,
  separateBytes,
} from "./captions.js";
import {
  characterLength,
  ending,
  excerpt,
  roundEven,
  toBytes,
  visible,
  visibleJoin,
} from "./formatting.js";
import { Run } from "./run.js";

const SHARES = 100_000;
const PROMPT_START = 80; // characters
const PROMPT_LONGEST = 200;
const MAX_BYTES_OF_CHARACTER = 4;
const ENDS_AT_ONCE = "(ends)";
const BEGUN_WORD = / ?[\p{L}\p{Nl}\p{No}]+$/u;
const LETTER = /^\p{L}/u;
const LONE_BYTE = /[\udc80-\udcff]$/u;

/** A run that may still grow, and what has been sent of it to one board. */
export class Feed {
  /** @param {string} key names the run @param {"live" | "replay"} mode */
  constructor(key, mode) {
    this.key = key;
    this.mode = mode;
    this.run = new Run();
    this.begin = 0; // first step of the next message
  }

  /**
   * Take further events; returns the next message, or null as long as the run has not started.
   * @param {Iterable<RunEvent>} events
   * @returns {Message | null}
   */
  message(events) {
    fold(events, this.run);
    if (!this.run.header) return null;
    const message = boardMessage(this.run, this.begin);
    if (this.mode === "live") this.begin = Math.max(0, this.run.steps.length - 1);
    return { ...message, run: this.key, mode: this.mode, autoplay: false, cursor: null };
  }

  /** Make the next message start at this step, because the board missed what came after it. */
  resend(step = 0) {
    this.begin = step;
  }
}

/** The run after further events, with the captions after each step. @param {Iterable<RunEvent>} events */
export function fold(events, run = new Run()) {
  for (const event of events) {
    const last = run.steps.at(-1);
    if (last && event.step > last.step) last.sentences ??= captionsNow(run);
    run.apply(event);
  }
  return run;
}

/**
 * What changed in the run at or after a step (0: all).
 * @param {Run} run
 * @returns {Omit<Message, "run" | "mode" | "autoplay">}
 */
export function boardMessage(run, since = 0) {
  const { started, ended, events } = run;
  const { config, model } = started;
  const { text: prompt, begun } = promptAndBegunWord(run);
  const texts = new Map(); // of tokens, with their places in the message
  const changed = run.paths.filter(({ touched }) => touched >= since);
  return {
    version: events.length,
    since_step: since,
    prompt: endsOf(prompt),
    file: fileStem(started),
    about: originWords(started),
    threshold: started.threshold_nats,
    policy: config.policy,
    min_fork_weight: config.min_fork_weight ?? 0,
    cache: config.cache,
    row_bytes: model.row_bytes,
    max_steps: config.max_new_tokens,
    ended: ended?.reason ?? "",
    limit: limitSentence(run),
    labels: null,
    deciding: null,
    r: config.r,
    paths: changed.map((path) => {
      return pathRecord(run, path, since, isFirst(run, path) ? begun : "", texts);
    }),
    texts: [...texts.keys()].map(visible),
    steps: stepRecords(run, since),
    sentences: captions(run),
  };
}

/** The text before the first boxes, and the word at its end that they go on. @param {Run} run */
function promptAndBegunWord(run) {
  const { started } = run;
  const text = visible(beginning(started));
  const at = text.search(BEGUN_WORD);
  if (!started.continued || at <= 0) return { text, begun: "" };
  const firsts = run.paths.filter((path) => isFirst(run, path));
  const goesOn = firsts.every(({ tokens }) => !tokens[0].special && LETTER.test(tokens[0].kept));
  if (!firsts.length || !goesOn) return { text, begun: "" };
  return { text: text.slice(0, at), begun: text.slice(at) };
}

/** The text that the run continues (see RunStarted in eab/run/events). @param {RunEvent} started */
function beginning(started) {
  const { prompt, prompt_texts: texts, continued = 0, messages = [] } = started;
  const [own, kept] = [
    texts.slice(0, texts.length - continued),
    texts.slice(texts.length - continued),
  ];
  const last = messages.at(-1);
  const isOpen = last?.role === "assistant" && last.content !== prompt;
  const text = (isOpen ? last.content : "") + kept.join("");
  const whole = own.join("").trimEnd();
  const isUnknown = continued > 0 && !whole.includes(prompt.trimEnd());
  const isChat = messages.length > 0 || !(isUnknown || whole.endsWith(prompt.trimEnd()));
  return text && isChat ? `${prompt}\n${text}` : prompt + text;
}

/** Whether no token of the run comes before those of the path. @param {Run} run @param {RunPath} path */
function isFirst({ paths }, path) {
  const isBelowRoot = path.parent >= 0 && paths[path.parent].parent < 0 && bornOf(path) === 0;
  return (path.parent < 0 || isBelowRoot) && path.tokens.length > 0;
}

/** The start and the end of a long prompt. @param {string} text */
function endsOf(text) {
  if ([...text].length <= PROMPT_START + PROMPT_LONGEST) return text;
  return `${excerpt(text, PROMPT_START)} ${ending(text, PROMPT_LONGEST)}`;
}

/** @param {RunPath} path */
function bornOf(path) {
  return path.weights[0][0];
}

/**
 * @param {Run} run @param {RunPath} path @param {number} since @param {string} begun
 * @param {Map<string, number>} texts
 * @returns {PathMessage}
 */
function pathRecord(run, path, since, begun, texts) {
  const first = firstNew(path, since);
  const from = first ? since : 0;
  const shown = pieces(path, first);
  if (shown.length && !first) shown[0] = begun + shown[0];
  return {
    id: path.id,
    parent: path.parent,
    status: path.status,
    finish_reason: path.finishReason,
    weights: path.weights.filter(([step]) => step >= from),
    share: Number(path.share.toFixed(6)),
    born: bornOf(path),
    touched: path.touched,
    limited_steps: path.limitedSteps.filter((step) => step >= from),
    first_token: first,
    tokens: path.tokens.slice(first).map((token, at) => tokenRecord(token, shown[at], texts)),
    drawn: isDrawn(run, path),
    rest: false,
  };
}

/** The first token whose record may have changed since a step. @param {RunPath} path @param {number} since */
function firstNew(path, since) {
  let first = Math.min(Math.max(0, since - bornOf(path)), path.tokens.length);
  const earliest = Math.max(0, first - MAX_BYTES_OF_CHARACTER);
  const mayGoOn = (/** @type {string} */ text) => !text || LONE_BYTE.test(text);
  while (first > earliest && mayGoOn(shownOf(path.tokens[first - 1]))) first -= 1;
  if (!path.cut) return first;
  const cut = path.tokens.slice(0, first).findIndex(({ kept, text }) => kept !== text);
  return cut < 0 ? first : cut; // a stop string may cut off tokens that were already sent
}

/** @param {RunToken} token */
function shownOf({ special, kept }) {
  return special ? "" : kept;
}

/** The visible text of a path, one piece per token (eab/board/still.py). @param {RunPath} path */
function pieces(path, first = 0) {
  const start = startOfCharacter(path, first);
  let incomplete = "";
  /** @type {string[]} */
  const found = [];
  for (const token of path.tokens.slice(start)) {
    incomplete += shownOf(token);
    const isWhole = !isIncomplete(incomplete);
    found.push(isWhole ? visibleJoin(incomplete) : "");
    if (isWhole) incomplete = "";
  }
  if (incomplete && found.length) found[found.length - 1] = visibleJoin(incomplete);
  if (path.status === "finished" && found.length && !path.tokens.some(shownOf)) {
    found[found.length - 1] = ENDS_AT_ONCE;
  }
  return found.slice(first - start);
}

/** The token after which the character at this one starts. @param {RunPath} path @param {number} at */
function startOfCharacter(path, at) {
  let [first, texts] = [at, 0];
  while (first > 0 && texts < MAX_BYTES_OF_CHARACTER) {
    first -= 1;
    texts += Number(shownOf(path.tokens[first]) !== "");
  }
  return first;
}

/** Whether the text ends inside a character. @param {string} text */
function isIncomplete(text) {
  if (!LONE_BYTE.test(text)) return false;
  const tail = toBytes(text.slice(-3)).slice(-3);
  for (let length = 1; length <= tail.length; length++) {
    const first = tail[tail.length - length];
    if (first < 0x80 || first >= 0xf5) return false;
    if (first >= 0xc0) return length < characterLength(first);
  }
  return false;
}

/** @param {RunToken} token @param {string} piece @param {Map<string, number>} texts @returns {TokenTuple} */
function tokenRecord(token, piece, texts) {
  const { candidates, entropy, logProb } = token;
  const at = candidates.findIndex(([id]) => id === token.id);
  const flat = [];
  for (const [, text, probability] of candidates) {
    flat.push(placeOf(text, texts), roundEven(probability * SHARES));
  }
  const own = logProb === null ? null : roundEven(Math.exp(logProb) * SHARES);
  return [
    piece,
    entropy === null ? null : Number(entropy.toFixed(4)),
    flat,
    at < 0 ? [placeOf(token.text, texts), own] : at,
    .../** @type {[]} */ ((token.whole ?? []).map((bound) => Number(bound.toFixed(4)))),
  ];
}

/** @param {string} text @param {Map<string, number>} texts with their places, by which it is found later */
function placeOf(text, texts) {
  const place = texts.get(text) ?? texts.size;
  if (place === texts.size) texts.set(text, place);
  return place;
}

/** Whether a branch stands for all tokens without one (`RunState.is_drawn`). @param {Run} run @param {RunPath} path */
function isDrawn({ started, paths }, path) {
  if (started.config.policy !== "fair" || path.parent < 0) return false;
  const branches = paths[path.parent].children.map((id) => paths[id]);
  const [first, last] = [branches[0], branches.at(-1)];
  if (branches.length < 2 || last !== path || !path.tokens.length || !first.tokens.length)
    return false;
  const [own, most] = [path, first].map(({ tokens: [{ logProb }] }) => {
    return logProb === null ? 0 : Math.exp(logProb);
  });
  return path.share * most > 1.01 * own * first.share;
}

/** @param {Run} run @param {number} since @returns {StepMessage[]} */
function stepRecords(run, since) {
  return run.steps.slice(since).flatMap((step) => {
    const sentences = step === run.steps.at(-1) ? captionsNow(run) : step.sentences;
    return step.kv && sentences ? [{ ...stepRecord(run, step.step, step.kv), sentences }] : [];
  });
}

/** @param {Run} run @param {number} step @param {RunEvent} kv @returns {StepMessage} */
function stepRecord(run, step, kv) {
  const row = run.started.model.row_bytes;
  return {
    step,
    shared: kv.rows_shared * row,
    private: kv.rows_private * row,
    spare: kv.rows_spare * row,
    reused: (kv.rows_reused ?? 0) * row,
    independent: separateBytes(run, kv),
    paths: kv.paths.map((/** @type {number[]} */ [path, shared, own]) => {
      return [path, shared * row, own * row];
    }),
  };
}
