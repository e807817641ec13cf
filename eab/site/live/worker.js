// The story model in a worker of the page. It receives
//
//     {type: "run", prompt, settings, base}
//     {type: "grow", started, continued, settings, base}   see `continueFrom`
//     {type: "stop"}
//
// where `base` is the URL of the folder that eab/site/weights.py wrote; or `files` has its files, as
// Uint8Arrays by name. `seed` may be given apart from the settings. A new run replaces the one before.
// It posts, each with the `id` of the message that asked for it, if any:
//
//     {type: "progress", loaded, total}   bytes of the model
//     {type: "events", events}            after every forward pass, as a run file has them
//     {type: "error", message}            a sentence

import { startingConfig } from "./config.js";
import { EabError } from "./errors.js";
import { Model } from "./loading.js";
import { continueFrom, eventStream } from "./loop.js";
import { modelFiles } from "./packaged.js";

/** @typedef {Record<string, any>} Asked */

/** @type {Promise<Model> | null} */
let loading = null;
let runs = 0; // how many were asked for; the last one is current
let stopped = 0; // the last one that was stopped

self.onmessage = ({ data }) => {
  if (data.type === "stop") stopped = runs;
  else run(data, ++runs);
};

/** @param {Asked} asked @param {number} number */
async function run(asked, number) {
  /** @param {Asked} message */
  const post = (message) => number === runs && self.postMessage({ id: asked.id, ...message });
  try {
    const model = await loaded(asked, post);
    let step = 0;
    for (const events of eventStream(model, requestOf(model, asked))) {
      if (number === stopped)
        events.splice(0, events.length, { event: "RunEnded", step, reason: "stopped" });
      post({ type: "events", events });
      if (number !== runs || number === stopped) return;
      const timed = events.at(-1);
      if (timed?.event === "StepTimed") step = timed.step + 1;
      await turn();
    }
  } catch (error) {
    const message = error instanceof EabError ? error.message : `the run failed: ${error}`;
    post({ type: "error", message });
  }
}

/** The model, which stays; a failed attempt does not. @param {Asked} asked @param {(message: Asked) => void} post */
async function loaded({ base, files }, post) {
  loading ??= modelFiles(
    base,
    (loaded, total) => post({ type: "progress", loaded, total }),
    files,
  ).then(({ manifest, files }) => new Model(manifest, files));
  try {
    return await loading;
  } catch (error) {
    loading = null;
    throw error;
  }
}

/** @param {Model} model @param {Asked} asked */
function requestOf(model, { type, prompt, started, continued, settings, seed }) {
  const chosen = seed === undefined ? settings : { ...settings, seed };
  if (type === "grow") return continueFrom(model, started, continued, chosen);
  return { prompt, config: startingConfig(chosen, model.settings) };
}

/** Let messages arrive; `setTimeout` would wait. */
function turn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve(undefined);
    };
    port2.postMessage(null);
  });
}
