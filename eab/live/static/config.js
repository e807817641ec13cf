// Mirrors eab/config.py and eab/branching/presets.py. The settings themselves, with their defaults,
// limits and presets, come from Python in `model.json`.

import { EabError } from "./errors.js";

/** @typedef {Record<string, any>} Config The settings of a run, by their names in Python. */
/** @typedef {{ low: number, high: number, whole: boolean }} Limits */
/** @typedef {{ defaults: Config, start: Config, presets: Record<string, Config>, limits: Record<string, Limits>, thresholds: Record<string, Limits> }} Settings */

const VARIED = new Set(
  (
    "entropy_threshold threshold_unit branch_factor max_paths min_fork_weight branch_min_p " +
    "temperature top_p max_new_tokens seed r"
  ).split(" "),
);
const MORE =
  "the live page has the story model, the policy fair and the tree cache. The program has the rest, " +
  "such as chat models, GPUs and batching: pip install eab-explorer, then eab app";

/**
 * Settings, which may name a `preset`, completed with the starting values.
 * @param {Config} given a threshold without a unit is in nats @param {Settings} known
 */
export function startingConfig({ preset = "balanced", ...own }, known) {
  const unit = "entropy_threshold" in own ? { threshold_unit: "nats" } : {};
  const ofPreset = known.presets[String(preset)];
  if (!ofPreset) throw new EabError(`there is no preset ${preset}`);
  /** @type {Config} */
  const config = { ...known.defaults, ...known.start, ...ofPreset, ...unit, ...own };
  for (const [name, value] of Object.entries(config)) {
    if (!VARIED.has(name) && String(value) !== String(known.defaults[name])) {
      throw new EabError(`the setting ${name} is ${value}; ${MORE}`);
    }
    check(name, value, known.limits[name]);
  }
  const limits = known.thresholds[config.threshold_unit];
  if (!limits) {
    const units = Object.keys(known.thresholds).join(", ");
    throw new EabError(`threshold_unit is ${config.threshold_unit}; it must be one of: ${units}`);
  }
  check("entropy_threshold", config.entropy_threshold, limits);
  return config;
}

/** @param {string} name @param {unknown} value @param {Limits} [limits] */
function check(name, value, limits) {
  if (!limits || (name === "r" && value === "auto")) return;
  const { low, high, whole } = limits;
  const isNumber = typeof value === "number" && (!whole || Number.isSafeInteger(value));
  if (isNumber && low <= value && value <= high) return;
  const kind = whole ? "a whole number" : "a number";
  throw new EabError(`the setting ${name} is ${value}; it must be ${kind} from ${low} to ${high}`);
}
