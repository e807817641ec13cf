// Mirrors eab/config.py and eab/branching/presets.py. The settings themselves, with their defaults,
// limits and presets, come from Python in `model.json`.

import { EabError } from "./errors.js";

/** @import { Config, Limits, Manifest } from "./types.d.ts" */

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
 * The settings, which may name a `preset`, completed with the starting values. A threshold without
 * a unit is in nats.
 * @param {Record<string, unknown>} given @param {Manifest["settings"]} known
 */
export function startingConfig({ preset = "balanced", ...own }, known) {
  const unit = "entropy_threshold" in own ? { threshold_unit: "nats" } : {};
  const ofPreset = known.presets[String(preset)];
  if (!ofPreset) throw new EabError(`there is no preset ${preset}`);
  const config = /** @type {Config} */ ({
    ...known.defaults,
    ...known.start,
    ...ofPreset,
    ...unit,
    ...own,
  });
  for (const [name, value] of Object.entries(config)) {
    if (!VARIED.has(name) && String(value) !== String(known.defaults[name])) {
      throw new EabError(`the setting ${name} is ${value}; ${MORE}`);
    }
    check(name, value, known.limits[name]);
  }
  check("threshold_unit", config.threshold_unit, undefined, Object.keys(known.thresholds));
  check("entropy_threshold", config.entropy_threshold, known.thresholds[config.threshold_unit]);
  return config;
}

/** @param {string} name @param {unknown} value @param {Limits} [limits] @param {string[]} [names] */
function check(name, value, limits, names) {
  if (names && !names.includes(String(value))) {
    throw new EabError(`the setting ${name} is ${value}; it must be one of: ${names.join(", ")}`);
  }
  if (!limits || (name === "r" && value === "auto")) return;
  const { low, high, whole } = limits;
  const isNumber = typeof value === "number" && (!whole || Number.isSafeInteger(value));
  if (isNumber && low <= value && value <= high) return;
  const kind = whole ? "a whole number" : "a number";
  throw new EabError(`the setting ${name} is ${value}; it must be ${kind} from ${low} to ${high}`);
}
