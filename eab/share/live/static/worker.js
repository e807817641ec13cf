// The story model in a worker of the page. It receives
//
//     {type: "run", base, ...request}   a Request of loading.js
//     {type: "stop"}
//
// where `base` is the URL of the folder that eab/share/live/__init__.py wrote, with a slash at its end; or
// `files` has these files, as Uint8Arrays by name. A new run replaces the one before. It posts
//
//     {type: "progress", loaded, total}   bytes of the model
//     {type: "events", events, id}        after every forward pass, as a run file has them
//     {type: "error", message, id}        a sentence; `id` is that of the message that asked

import { EabError } from "./errors.js";
import { Model } from "./loading.js";
import { eventStream } from "./loop.js";
import { modelFiles } from "./packaged.js";

/** @typedef {import("./loading.js").Request & { base: string, id: string } & Record<string, any>} Message */

const TOO_LITTLE =
  "this browser has too little memory for the story model. The recorded runs stay usable";

/** @type {Promise<Model> | undefined} */
let loading;
let runs = 0; // how many were asked for; the last one is current
let stopped = 0; // the last one that was stopped

self.onmessage = ({ data }) => {
  if (data.type === "stop") stopped = runs;
  else run(data, ++runs);
};

/** @param {Message} asked @param {number} number */
async function run(asked, number) {
  /** @param {object} message */
  const post = (message) => number === runs && self.postMessage({ ...message, id: asked.id });
  try {
    const model = await loaded(asked);
    const stream = eventStream(model, asked);
    let step = 0;
    for (let last = ""; last !== "RunEnded" && number === runs; await turn()) {
      const ended = [{ event: "RunEnded", step, reason: "stopped" }];
      const events = number === stopped ? ended : (stream.next().value ?? ended);
      post({ type: "events", events });
      last = events[events.length - 1].event;
      if (last === "StepTimed") step = events[events.length - 1].step + 1;
    }
  } catch (error) {
    const failed = error instanceof RangeError ? TOO_LITTLE : `the run failed: ${error}`;
    post({ type: "error", message: error instanceof EabError ? error.message : failed });
  }
}

/** The model, which stays; a failed attempt does not. @param {Message} asked */
async function loaded({ base, files }) {
  /** @param {number} loaded @param {number} total */
  const report = (loaded, total) => self.postMessage({ type: "progress", loaded, total });
  loading ??= modelFiles(base, report, files).then((read) => new Model(read.manifest, read.files));
  try {
    return await loading;
  } catch (error) {
    loading = undefined;
    throw error;
  }
}

/** Let messages arrive; `setTimeout` would wait for milliseconds. */
function turn() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = resolve;
    port2.postMessage(null);
  }).finally(() => port1.close());
}
