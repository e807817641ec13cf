// The types of the board, for `tsc` only: modules name them in `@import` comments, and the browser
// never loads this file.
//
// First what arrives (tests/board/test_types.py compares it with what Python sends), then what the
// board makes of it.

import type { Board } from "./board.js";
import type { Commands } from "./commands.js";
import type { Tour } from "./streamlit.js";
import type { Shown } from "./what_if_messages.js";

// ---- the message

export type Status = "live" | "forked" | "finished" | "pruned" | "given";
export type Side = "both" | "a" | "b";

/**
 * piece: its part of the path's text. candidates: of each the place of its text in `texts`, and its
 * probability in hundred-thousandths. taken: index of a candidate, or the same two of the token.
 * low, high: bounds of the whole entropy (nats), where only some tokens are known.
 */
export type TokenTuple = [
  piece: string,
  entropy: number | null, // nats; null if it was not measured
  candidates: number[],
  taken: number | [text: number, probability: number | null],
  low?: number,
  high?: number,
];

export interface PathMessage {
  id: number;
  parent: number; // -1 for the first path
  status: Status;
  finish_reason: "stop" | "length" | null;
  weights: [step: number, weight: number][]; // all, or if first_token > 0 those since since_step
  share: number; // of the fork's weight
  drawn: boolean; // whether it stands for all tokens without a branch of their own
  rest: boolean; // whether it goes on where a given text leaves its parent
  born: number;
  touched: number; // step of the last change
  limited_steps: number[]; // as the weights
  first_token: number; // index in the path of the first token that this message holds
  tokens: TokenTuple[];
}

export interface StepMessage {
  step: number;
  shared: number; // bytes, as all below
  private: number;
  spare: number;
  reused: number; // of shared and private, what is in the prefix cache
  independent: number; // held if each path had a cache of its own
  // `state` is a part of `private`
  paths: [path: number, shared: number, private: number, state?: number][];
  sentences?: Sentences;
}

export interface Sentences {
  tree: string;
  entropy: string;
  memory: string;
}

/**
 * sentence: names the fork that decides most. forks: by the path that forks. answers: of several
 * texts, with the paths that end in it.
 */
export interface DecidingMessage {
  sentence: string;
  forks: [path: number, share: number, words: string][];
  answers: [words: string, paths: number[]][];
}

/** A rule that labels texts, or a mark that labels all that follows a token (eab/run/events/values.py). */
export interface LabelRule {
  label: string;
  kind: "mark" | "contains" | "pattern" | "json";
  text: string;
  path: number;
  token: number;
}

/** How likely a label is: an estimate, and certain bounds. */
export interface LabelShare {
  name: string;
  estimate: number;
  low: number;
  high: number;
  error: number | null; // the standard error of the estimate; null for a single run
}

/** cover: the tokens that decide a label, by its place in `shares`. */
export interface LabelsMessage {
  rules: LabelRule[];
  shares: LabelShare[];
  runs: number; // of which the estimates are the mean
  unexplored: number;
  explored: number; // texts that were explored
  cover: [path: number, token: number, label: number][];
  given: [path: number, sentence: string][]; // the texts that the user gave
}

export interface Message {
  run: string; // names the run
  mode: "live" | "replay";
  autoplay: boolean;
  cursor?: number | null; // the step to begin at
  version: number;
  since_step: number; // 0: a keyframe
  prompt: string;
  file: string; // how names of its files begin
  about: string; // its prompt, model and settings, for a picture
  threshold: number | null;
  policy: string;
  min_fork_weight: number;
  cache: string;
  row_bytes: number;
  max_steps: number;
  ended: string;
  limit: string; // what the path limit did, in a sentence; "" if nothing
  labels: LabelsMessage | null; // what the user labelled; null: nothing
  deciding: DecidingMessage | null; // which forks decide the answer; null while nothing can be said
  r: number | "auto"; // the growth step
  texts: string[]; // of tokens, each once
  paths: PathMessage[];
  steps: StepMessage[];
  sentences: Sentences;
  what_if?: string; // names the settings that a finished run is shown with; "" as recorded
  unknowns?: [path: number, token: number, words: string][]; // what only the model could tell
  notes?: Partial<Sentences>; // stand over the pictures instead of the sentences
  graft?: boolean; // the two runs are one and what was grown from it
  sides?: Side[]; // of two runs in one tree: whose each path is
  weights_in_b?: (number | null)[]; // of those that both have; the others are of A, or of the one
  asked?: WhatIfRequest; // settings at which the board shows the run
  recorded?: string; // the events from which it recomputes the run, packed
  guide?: Guide; // where a lesson leads the board
  offers?: Offers;
}

/** What the board shows next, once per guide (eab/lessons/lesson.py). */
export interface Guide {
  id: string;
  cursor: number | null; // a step
  token: [path: number, token: number] | null; // to select
  drawer: "tables" | "help" | null; // to open
  highlight: string; // the panel to frame
  hides: string[]; // topics that the lesson has not introduced
}

/** Where the board of the lecturer stands; a board of another run leaves it alone. */
export interface Lead {
  id: string;
  run: string;
  cursor: number | null; // a step; null: the newest
  token: [path: number, token: number] | null; // the selected one
}

/** What the Streamlit page lets its board ask for. */
export interface Offers {
  grow?: boolean;
  go_on?: number; // by how many tokens all texts that were cut can go on; 0: they cannot
  what_if?: boolean;
  run_at?: boolean;
  tour?: boolean | null; // whether it begins by itself on the first visit; null: there is none
  graft?: boolean | null; // whether the run is shown in the tree it grew from; null if it is not grown
  label?: boolean; // whether the labels can be changed
  extend?: boolean; // whether the model can read texts that the run does not have
  repeat?: boolean; // whether the run can be made with more seeds
  link?: LinkOffer | null;
}

/** The query of a link to the run, without the cursor; "" if there can be none. words: what it opens. */
export interface LinkOffer {
  query: string;
  words: string;
}

/** Explore until this share is left, read a text, or make the run with more seeds. */
export interface ExtendRequest {
  until: number;
  text: string;
  repeat: boolean;
}

/** Show the run with these settings instead of its own; null: as recorded. */
export interface WhatIfRequest {
  threshold: number | null; // nats
  r: number | "auto" | null;
  deciding?: DecidingMessage | null; // of the run with these settings, where the host knows it
}

// ---- runs as events

/** An event as a run file holds it (eab/run/events), and values in it: any of their fields. */
// biome-ignore lint/suspicious/noExplicitAny: Python has checked each field
export type RunEvent = Record<string, any>;

export interface RunToken {
  step: number;
  id: number;
  text: string;
  special: boolean;
  logProb: number | null;
  entropy: number | null; // nats
  candidates: [id: number, text: string, probability: number][];
  whole: [low: number, high: number] | null;
  kept: string; // its text up to any stop string
}

export interface RunPath {
  id: number;
  parent: number;
  weights: [step: number, weight: number][];
  heir: boolean;
  touched: number;
  share: number;
  tokens: RunToken[];
  children: number[];
  status: Status;
  finishReason: "stop" | "length" | null;
  limitedSteps: number[];
  cut: number; // bytes that a stop string cut off
}

export interface RunStep {
  step: number;
  kv: RunEvent | null;
  sentences: Sentences | null; // after it; only `fold` in messages.js knows them
}

/** Where only the model could say what happens in a recomputed run (eab/engine/what_if/__init__.py). */
export interface Unknown {
  step: number;
  path: number;
  why: "fork" | "limit" | "heir" | "dropped" | "ended";
}

// ---- what the board keeps

/** The parts of a message that are of the run as a whole. key: names it; null before the first message. */
export type RunInfo = Pick<
  Message,
  | ("mode" | "prompt" | "file" | "about" | "policy" | "min_fork_weight" | "cache" | "row_bytes")
  | ("max_steps" | "ended" | "limit" | "r" | "sentences")
> & { key: string | null; threshold: number };

/** share: of the semantic entropy, 0 to 1. words: what the fork decides; they follow "This fork". */
export interface ForkEffect {
  share: number;
  words: string;
}

/** Which forks decide the answer. sentence: names the one that decides most; "" if none is known. */
export interface Deciding {
  sentence: string;
  effects: Map<number, ForkEffect>; // by the path that forks
  answers: Map<number, string>; // that several texts give, by the path that ends in it
}

/** cover: by path, the tokens that decide a label. */
export interface Labels extends Omit<LabelsMessage, "cover"> {
  cover: Map<number, { token: number; label: number }[]>;
}

export interface Candidate {
  text: string;
  probability: number;
}

export interface Token {
  piece: string;
  text: string;
  probability: number; // -1 if it is not known
  entropy: number; // -1 if it was not measured
  candidates: Candidate[];
  taken: number;
  whole: Bounds | null; // of the entropy of all tokens; null if `entropy` says all that is known
}

export interface Bounds {
  low: number; // nats
  high: number;
}

export interface Path {
  id: number;
  parent: number;
  status: Status;
  finishReason: "stop" | "length" | null;
  weights: { step: number; weight: number }[];
  share: number;
  drawn: boolean;
  rest: boolean;
  born: number;
  touched: number;
  limitedSteps: number[];
  tokens: Token[];
  joined?: Joined; // if it is the box of several texts
}

/** What one box stands for. line: the paths whose words it shows. all: of all its texts. */
export interface Joined {
  answer: string;
  line: Path[];
  all: Path[];
}

export interface PathRows {
  path: number;
  shared: number;
  private: number;
  state: number; // the part of `private` that is no rows
}

export interface Step extends Omit<StepMessage, "paths"> {
  paths: PathRows[];
}

/** A token of a path: `token` is its index in the path. */
export interface TokenPlace {
  path: number;
  token: number;
}

/** The token to grow from. candidate: the one to force, -1 for none. */
export interface TokenAddress extends TokenPlace {
  run: string;
  candidate: number;
}

// ---- drawing

/** Where the boxes stand: arrays by the path's id, in CSS pixels at scale 1. */
export interface Arrangement {
  x: number[]; // left edge
  y: number[]; // middle line
  only: boolean[]; // whether it is the only branch that is drawn
  ends: boolean[]; // whether no branches of it are drawn
  boxWidths: number[];
  boxHeights: number[];
  perLine: number[]; // characters in a line of the box
  most: number[]; // lines of the box
  longest: number; // line of all boxes that are not at the right edge, characters
  missing: number[]; // characters that the box leaves out
  prompt: Label; // as much of it as its box holds
  promptWidth: number;
  promptHeight: number;
  width: number;
  height: number;
  leftOut: number; // characters of all boxes
}

/** How much text each box may hold: arrays by the path's id. */
export interface BoxSizes {
  perLine: number[]; // characters in a line
  most: number[]; // lines
  folded: ReadonlySet<number>; // paths after which texts are not drawn
}

export interface Layout extends Arrangement {
  rank: number[]; // place of the path in the order of the tree, from the top
}

export type Attributes = Record<string, string | number | boolean>;

export interface Cell {
  line: number; // of the box, from 0
  left: number;
  right: number;
}

/** The words in a box and where each of its tokens stands in them, in pixels. */
export interface Label {
  lines: string[];
  width: number;
  cells: Cell[];
}

export interface Point {
  x: number;
  y: number;
}

export interface Size {
  width: number;
  height: number;
}

/** What of a picture its file shows, where that is more than the screen shows. */
export interface PictureArea extends Size {
  transform: string;
}

/** What stands around a picture in its file. */
export interface PictureFrame {
  area: PictureArea | null;
  title: string;
  sentence: string;
  about: string; // of the run, below the legend
  key: HTMLElement; // the legend on the screen
}

export interface View {
  render(): void;
}

// ---- what views send

type CommandName = {
  [Name in keyof Commands]: Commands[Name] extends (...values: never[]) => void ? Name : never;
}[keyof Commands];

/** Have a command done: its name in commands.js, and what it takes. */
export type Send = <Name extends CommandName>(
  name: Name,
  ...values: Parameters<Commands[Name]>
) => void;

// ---- hosts

/** The arguments of a Streamlit component, version 2. */
export interface StreamlitArguments {
  data?: Uint8Array | null; // a Message as JSON
  parentElement: (HTMLElement | ShadowRoot) & { __board?: Board; __shown?: Shown; __tour?: Tour };
  setTriggerValue(name: string, value: unknown): void;
}

/** What anywidget hands to `render`. */
export interface WidgetModel {
  get(name: "message"): Message;
  get(name: "recorded" | "status" | "hides_still"): string;
  get(name: "running"): boolean;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
  send(content: { request: "stop" | "missed" }): void;
}

/**
 * What a page holds of a run (eab/share/exports.py). message: all of it, or only what cannot be
 * made from the events. events: none if they do not hold all that the run depended on.
 */
export interface PageData {
  title: string;
  about: string;
  texts: { sentence: string; columns: string[]; rows: string[][] };
  message: Pick<Message, "run" | "mode" | "autoplay"> & Partial<Message>;
  events: RunEvent[];
}
