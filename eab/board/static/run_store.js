// The run on the board so far: everything in the messages, but not what the user looks at. Only
// this module knows how paths, tokens and steps are laid out in a message. Records may arrive
// twice, late or not at all.

/** @import { Candidate, Deciding, DecidingMessage, Labels, LabelsMessage, Message, Offers, Path, PathMessage, RunInfo, Sentences, Side, Step, StepMessage, TokenPlace, TokenTuple } from "./types.d.ts" */
import { childrenOf, isOfFork } from "./paths.js";

// Probabilities arrive as integers in units of 1 / SHARES (`SHARES` in eab/board/messages.py).
const SHARES = 100_000;

/** @type {RunInfo} */
const NO_RUN = {
  key: null,
  mode: "replay",
  prompt: "",
  file: "run",
  about: "",
  threshold: 1,
  policy: "",
  min_fork_weight: 0,
  cache: "",
  row_bytes: 0,
  max_steps: 0,
  ended: "",
  limit: "",
  r: "auto",
  sentences: { tree: "", entropy: "", memory: "" },
};

/** @param {(number | null)[]} pair @param {string[]} texts @returns {Candidate} */
function decodeCandidate([place = -1, share = 0], texts) {
  return { text: texts[place ?? -1] ?? "", probability: share === null ? -1 : share / SHARES };
}

/** A token; its candidates are decoded when they are read, as a large run has a million of them. */
class DecodedToken {
  /** @param {TokenTuple} tuple @param {string[]} texts */
  constructor([piece, entropy, flat, taken, low, high], texts) {
    const isCandidate = typeof taken === "number";
    const pair = isCandidate ? flat.slice(2 * taken, 2 * taken + 2) : taken;
    const { text, probability } = decodeCandidate(pair, texts);
    this.piece = piece;
    this.text = text;
    this.probability = probability;
    this.entropy = entropy ?? -1;
    this.taken = isCandidate ? taken : -1;
    this.whole = low === undefined || high === undefined ? null : { low, high };
    this.flat = flat;
    this.texts = texts;
  }

  /** @returns {Candidate[]} */
  get candidates() {
    const { flat, texts } = this;
    return Array.from({ length: flat.length / 2 }, (_, at) =>
      decodeCandidate(flat.slice(2 * at, 2 * at + 2), texts),
    );
  }
}

/**
 * @param {PathMessage} message
 * @param {string[]} texts of its tokens
 * @param {Path | undefined} before the path as known so far; it has the tokens not in the message
 * @param {number} since the step from which the message has changes of weights and limits
 * @returns {Path}
 */
function decodePath(message, texts, before, since) {
  const known = message.first_token > 0 ? before : undefined;
  const weights = message.weights.map(([step, weight]) => ({ step, weight }));
  return {
    id: message.id,
    parent: message.parent,
    status: message.status,
    finishReason: message.finish_reason,
    weights: [...(known?.weights.filter(({ step }) => step < since) ?? []), ...weights],
    share: message.share,
    drawn: message.drawn,
    rest: message.rest,
    born: known?.born ?? message.born,
    touched: message.touched,
    limitedSteps: [
      ...(known?.limitedSteps.filter((step) => step < since) ?? []),
      ...message.limited_steps,
    ],
    tokens: [
      ...(known?.tokens.slice(0, message.first_token) ?? []),
      ...message.tokens.map((tuple) => new DecodedToken(tuple, texts)),
    ],
  };
}

/** @param {StepMessage} message @returns {Step} */
function decodeStep(message) {
  const paths = message.paths.map(([path, shared, own, state = 0]) => {
    return { path, shared, private: own, state };
  });
  return { ...message, paths };
}

/** @param {DecidingMessage | null} message @returns {Deciding} */
function decodeDeciding(message) {
  const { sentence, forks, answers } = message ?? { sentence: "", forks: [], answers: [] };
  return {
    sentence,
    effects: new Map(forks.map(([path, share, words]) => [path, { share, words }])),
    answers: new Map(answers.flatMap(([words, paths]) => paths.map((id) => [id, words]))),
  };
}

/** @param {LabelsMessage | null} message @returns {Labels} */
function decodeLabels(message) {
  const { cover, ...others } = message ?? NO_LABELS;
  /** @type {Labels["cover"]} */
  const byPath = new Map();
  for (const [path, token, label] of cover)
    byPath.set(path, [...(byPath.get(path) ?? []), { token, label }]);
  return { ...others, cover: byPath };
}

/** @type {LabelsMessage} */
const NO_LABELS = {
  rules: [],
  shares: [],
  runs: 1,
  unexplored: 1,
  explored: 0,
  cover: [],
  given: [],
};

export class RunStore {
  run = NO_RUN;
  version = -1;
  /** @type {Map<number, Path>} */
  paths = new Map();
  /** @type {Map<number, Step>} */
  steps = new Map();
  /** The children of each path; null until needed. @type {Map<number, Path[]> | null} */
  families = null;
  hasBands = false; // whether only bounds of some entropies are known
  hasReused = false; // whether the run reads rows of the prefix cache
  hasStates = false; // whether paths have states besides rows
  highestEntropy = 0;
  highestBytes = 1;
  lastStep = 0;
  /** Which forks decide the answer. */
  deciding = decodeDeciding(null);
  /** What the user labelled. */
  labels = decodeLabels(null);
  /** The what-if settings with which a finished run is shown; "" for its own. */
  whatIf = "";
  /** What only the model could tell, in words, by path and token. @type {Map<string, string>} */
  unknowns = new Map();
  /** Notes shown above the pictures instead of the sentences. @type {Partial<Sentences>} */
  notes = {};
  /** With two runs in one tree: the run of each path. @type {Side[] | null} */
  sides = null;
  /** The weights in B of the paths that both have. @type {(number | null)[]} */
  weightsInB = [];
  isGraft = false; // whether the second run was grown from the first
  /** The requests that the host offers the user. @type {Offers} */
  offers = {};

  clear() {
    this.version = -1;
    this.paths.clear();
    this.families = null;
    this.hasBands = false;
    this.hasReused = false;
    this.hasStates = false;
    this.steps.clear();
    this.highestEntropy = 0;
    this.highestBytes = 1;
    this.lastStep = 0;
  }

  /** What the scale of the entropies must hold, in nats. */
  get top() {
    return Math.max(this.run.threshold * 1.4, this.highestEntropy, 0.1);
  }

  /** Whether the run continues. */
  get isGrowing() {
    return this.run.mode === "live" && !this.run.ended;
  }

  /**
   * Whether records are missing between this message and the known ones.
   * @param {Message} message
   */
  isGap({ run, since_step: since }) {
    return since > 0 && (run !== this.run.key || since > this.lastStep);
  }

  /** Take everything from a message except paths and steps. @param {Message} message */
  takeRun(message) {
    const { paths, steps, texts, run: key, ...header } = message;
    this.run = { ...header, key, threshold: message.threshold ?? NO_RUN.threshold };
    this.version = message.version;
    this.deciding = decodeDeciding(message.deciding);
    this.labels = decodeLabels(message.labels);
    this.whatIf = message.what_if ?? "";
    const unknowns = message.unknowns ?? [];
    this.unknowns = new Map(unknowns.map(([path, token, words]) => [`${path}.${token}`, words]));
    this.notes = message.notes ?? {};
    this.sides = message.sides ?? null;
    this.weightsInB = message.weights_in_b ?? [];
    this.isGraft = message.graft ?? false;
  }

  /**
   * @param {Message} message
   * @returns {boolean} whether all tokens before those of the message are known
   */
  addRecords({ paths, texts, steps, since_step: since }) {
    if (!paths.every((path) => this.addPath(path, texts, since))) return false;
    for (const step of steps) this.addStep(step);
    return true;
  }

  /**
   * @param {PathMessage} message
   * @param {string[]} texts of its tokens
   * @param {number} since the step from which the message has changes
   * @returns {boolean} whether all tokens before those of the message are known
   */
  addPath(message, texts, since) {
    const before = this.paths.get(message.id);
    if (before && before.touched > message.touched) return true;
    if (message.first_token > (before?.tokens.length ?? 0)) return false;
    const path = decodePath(message, texts, before, since);
    this.paths.set(path.id, path);
    this.families = null;
    for (const { entropy, whole } of path.tokens.slice(message.first_token)) {
      this.highestEntropy = Math.max(this.highestEntropy, entropy, whole?.high ?? 0);
      this.hasBands ||= whole !== null;
    }
    return true;
  }

  /** @param {StepMessage} message */
  addStep(message) {
    const step = decodeStep(message);
    this.steps.set(step.step, step);
    this.lastStep = Math.max(this.lastStep, step.step);
    const held = step.shared + step.private + step.spare;
    this.highestBytes = Math.max(this.highestBytes, step.independent, held);
    this.hasReused ||= step.reused > 0;
    this.hasStates ||= step.paths.some(({ state }) => state > 0);
  }

  /** The records of this step, or of the last one. @param {number} step */
  stepAt(step) {
    return this.steps.get(step) ?? this.steps.get(this.lastStep);
  }

  /** @param {number} step @returns {Sentences} */
  sentencesAt(step) {
    return this.stepAt(step)?.sentences ?? this.run.sentences;
  }

  /**
   * Describes what only a run of the model could tell about a token; "" if nothing.
   * @param {number} path @param {number} token
   */
  unknownAt(path, token) {
    return this.unknowns.size ? (this.unknowns.get(`${path}.${token}`) ?? "") : "";
  }

  /** Whether the threshold can be moved; `original` cannot be recomputed at another threshold. */
  get canMoveThreshold() {
    return Boolean(this.offers.what_if) && this.run.policy !== "original";
  }

  forkSteps() {
    const children = [...this.paths.values()].filter((path) => isOfFork(path));
    return [...new Set(children.map((path) => path.born))];
  }

  /** @param {number} id */
  childrenOf(id) {
    this.families ??= childrenOf([...this.paths.values()]);
    return [...(this.families.get(id) ?? [])];
  }

  /** A path and all that grew from it. @param {number} id */
  grownFrom(id) {
    const grown = [id];
    for (const path of grown) for (const child of this.childrenOf(path)) grown.push(child.id);
    return grown.flatMap((path) => this.paths.get(path) ?? []);
  }

  /**
   * The ids of pruned paths, and of forked paths with no branch left.
   * @param {Path[]} inOrder all paths, parents before their children
   */
  droppedPaths(inOrder) {
    /** @type {Set<number>} */
    const dropped = new Set();
    const all = inOrder.toReversed();
    const parents = new Set(all.map(({ parent }) => parent));
    /** @type {Set<number>} */
    const survived = new Set();
    for (const { id, parent, status } of all) {
      const nothingLeft = status === "forked" && parents.has(id) && !survived.has(id);
      if ((status === "pruned" && !survived.has(id)) || nothingLeft) dropped.add(id);
      else survived.add(parent);
    }
    return dropped;
  }

  /** The ids of a path and its ancestors. @param {number} id @returns {Set<number>} */
  lineageOf(id) {
    const lineage = new Set();
    for (let at = id; at >= 0; at = this.paths.get(at)?.parent ?? -1) lineage.add(at);
    return lineage;
  }

  /** Whether one of the paths grew out of the other. @param {number} a @param {number} b */
  related(a, b) {
    return this.lineageOf(a).has(b) || this.lineageOf(b).has(a);
  }

  /**
   * The branch with the largest share among those that have tokens.
   * @param {Path} path @returns {Path | undefined}
   */
  heaviestChild({ id }) {
    const children = this.childrenOf(id).filter((child) => child.tokens.length);
    return children.sort((a, b) => b.share - a.share)[0];
  }

  /**
   * The paths of one text through this path: its ancestors, then the heaviest branches.
   * @param {Path} path
   */
  lineThrough(path) {
    const line = [...this.lineageOf(path.id)].reverse().flatMap((id) => this.paths.get(id) ?? []);
    for (let child = this.heaviestChild(path); child; child = this.heaviestChild(child))
      line.push(child);
    return line;
  }

  /**
   * The token of this step in the path, in an ancestor, or along its heaviest branches.
   * @param {Path} path @param {number} step @returns {TokenPlace}
   */
  tokenOfStep(path, step) {
    let at = path;
    for (let parent = this.paths.get(at.parent); parent && step < at.born; ) {
      at = parent;
      parent = this.paths.get(at.parent);
    }
    for (let child = this.heaviestChild(at); child && step >= at.born + at.tokens.length; ) {
      at = child;
      child = this.heaviestChild(at);
    }
    return { path: at.id, token: Math.max(0, Math.min(at.tokens.length - 1, step - at.born)) };
  }
}
