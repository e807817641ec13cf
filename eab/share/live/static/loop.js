// Mirrors eab/engine/loop.py, with the probe of build.py and eab/run/threshold.py: the events of a
// run, as a generator. To stop, stop iterating.

import { FairPolicy, GREEDY } from "./fair.js";
import { Generation } from "./generation.js";

/** @import { RunEvent } from "../../../board/static/types.d.ts" */
/** @import { Config, Model, Request } from "./loading.js" */

const PROBE_STEPS = 24;
const PROBE_FLOOR = 0.3; // nats
const ROUNDING = 1e-3; // relative
const OUT_OF_MEMORY =
  "this browser has too little memory for the run. Its tokens so far are kept; use fewer paths or " +
  "new tokens";

/**
 * Continue the prompt, and branch as the settings say; yields the events of one forward pass after
 * the other. EabError if the run cannot start.
 * @param {Model} model @param {Request} request @returns {Generator<RunEvent[]>}
 */
export const eventStream = function* (model, request) {
  const { prompt, continued = [] } = request;
  const config = { ...model.settings, ...request.settings };
  const ids = model.encode(request, config.max_new_tokens);
  const entropies = config.threshold_unit === "rank" ? yield* probe(model, ids, config) : [];
  const threshold_nats = thresholdInNats(config, model.card.vocab_size, entropies);
  const prompt_texts = ids.map((token) => model.tokenizer.text(token));
  const started = { prompt, prompt_tokens: ids, prompt_texts, model: model.card, config };
  const grown = continued.length ? { continued: continued.length } : {};
  yield [{ event: "RunStarted", ...started, threshold_nats, ...grown }];
  const generation = new Generation(model, ids, config, new FairPolicy(config, threshold_nats));
  try {
    while (generation.live.length) yield generation.pass();
    yield [{ event: "RunEnded", step: generation.step, reason: "finished" }];
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // an array could not be allocated
    const { step } = generation;
    yield [{ event: "RunEnded", step, reason: "failed", message: OUT_OF_MEMORY }];
  }
};

/**
 * Yields an event for each of a few greedy steps; returns their entropies.
 * @param {Model} model @param {number[]} ids @param {Config} config @returns {Generator<RunEvent[], number[]>}
 */
function* probe(model, ids, config) {
  const max_new_tokens = Math.min(PROBE_STEPS, config.max_new_tokens);
  const greedy = { ...config, max_paths: 1, max_new_tokens };
  const generation = new Generation(model, ids, greedy, GREEDY);
  const entropies = [];
  while (generation.live.length) {
    const { step } = generation;
    const events = generation.pass();
    const seen = events.find(({ event }) => event === "Predicted");
    const grew = events.find(({ event }) => event === "TokensAppended");
    const entropy = seen?.predictions[0][1];
    const [, , text, , special] = grew?.tokens[0] ?? [];
    entropies.push(entropy);
    yield [{ event: "Probed", step, entropy, text: special ? "" : text }];
  }
  return entropies;
}

/**
 * A rank is a place among the probe's entropies, from 1 for the highest; between two, it is
 * interpolated. Not below the floor, and not above the first entropy that reaches it.
 * @param {Config} config @param {number} vocabSize @param {number[]} entropies of the probe
 */
function thresholdInNats({ threshold_unit, entropy_threshold }, vocabSize, entropies) {
  if (threshold_unit === "nats") return entropy_threshold;
  if (threshold_unit === "normalised") return entropy_threshold * Math.log(vocabSize);
  const unsure = entropies.filter((entropy) => entropy >= PROBE_FLOOR);
  if (!unsure.length) return PROBE_FLOOR;
  const ordered = unsure.toSorted((one, other) => other - one);
  const place = Math.min(entropy_threshold, unsure.length) - 1;
  const above = ordered[Math.floor(place)];
  const ranked = above + (ordered[Math.ceil(place)] - above) * (place % 1);
  return Math.max(PROBE_FLOOR, (1 - ROUNDING) * Math.min(ranked, unsure[0]));
}
