// The values that the modules pass to each other; their names are those in Python.

/** The settings of a run (eab/config.py); those that count here. */
export type Config = Record<string, unknown> & {
  entropy_threshold: number;
  threshold_unit: "nats" | "normalised" | "rank";
  branch_factor: number;
  max_paths: number;
  min_fork_weight: number;
  branch_min_p: number;
  temperature: number;
  top_p: number;
  max_new_tokens: number;
  seed: number;
  r: number | "auto";
};
export type Limits = { low: number; high: number; whole: boolean };

/** `model.json`, written by eab/site/weights.py. */
export type Manifest = {
  card: { name: string; vocab_size: number };
  context: number;
  stop_ids: number[];
  shape: Shape;
  files: Record<string, { bytes: number; sha256: string }>;
  settings: {
    defaults: Config;
    start: Partial<Config>;
    presets: Record<string, Partial<Config>>;
    limits: Record<string, Limits>;
    thresholds: Record<string, Limits>;
  };
};
/** `config.json`; every head has its own K and V. */
export type Shape = Record<
  | "num_hidden_layers"
  | "head_dim"
  | "hidden_size"
  | "intermediate_size"
  | "rms_norm_eps"
  | "rope_theta",
  number
>;
export type Weights = Record<string, Float32Array>;

/** What a run starts from; `tokenIds` are those of the prompt, if they are known. */
export type Request = { prompt: string; config: Config; tokenIds?: number[]; continued?: number[] };
/** As a run file has it (eab/events). */
export type Event = { event: string } & Record<string, any>;

/** The new tokens of a pass, path after path. */
export type ForwardBatch = {
  ids: number[];
  positions: number[];
  rows: number[]; // where their K and V go
  seen: number[][]; // the rows of their paths, in the order of the text
  logitsIndices: number[]; // the last new token of each path
};

/** A live or finished path, with its last token. */
export type Leaf = {
  path: number;
  streamKey: bigint;
  weight: number;
  token: number;
  finished: boolean;
};
/** One continuation of a leaf; the heir would have come without a fork. */
export type Child = {
  leaf: Leaf;
  token: number;
  tokenLogProb: number;
  weight: number;
  heir: boolean;
};
export type Policy = {
  branch(leaf: Leaf, prediction: import("./sampling.js").Prediction, step: number): Child[];
  prune(weights: number[], step: number): (number | null)[];
};
