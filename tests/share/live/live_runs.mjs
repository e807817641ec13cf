// Reads lines of JSON, each a request to the live model, and answers each with a line of JSON.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { childStreamKey, pruningUniform, uniform } from "../../../eab/board/static/population.js";
import { Model } from "../../../eab/share/live/static/loading.js";
import { eventStream } from "../../../eab/share/live/static/loop.js";
import { TreeCache } from "../../../eab/share/live/static/tree.js";

const folder = process.argv[2];
const manifest = JSON.parse(readFileSync(`${folder}/model.json`, "utf8"));
const names = Object.keys(manifest.files);
const read = (name) => new Uint8Array(readFileSync(`${folder}/${name}`));
const files = Object.fromEntries(names.map((name) => [name, read(name)]));
const model = new Model(manifest, files);
const forward = model.decoder.forward.bind(model.decoder);

/** Numbers from -1 to 1; none without a seed. */
function randomNumbers(seed) {
  let state = seed;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return state / 2 ** 31;
  };
  return seed ? next : undefined;
}

const answers = {
  encode: ({ texts }) => texts.map((text) => model.tokenizer.encode(text)),
  texts: () => model.tokenizer.pieces.map((_, token) => model.tokenizer.text(token)),
  draws: ({ of }) =>
    of.map(([seed, key, step, number]) => [
      uniform(BigInt(seed), BigInt(key), step, number),
      pruningUniform(seed, step),
      String(childStreamKey(BigInt(key), step, number)),
    ]),
  logits({ ids }) {
    const cache = new TreeCache(manifest.card, "auto");
    return [...model.decoder.forward(cache.place([0], [ids], ids.length, 1), cache)[0]];
  },
  run({ noise = [], rounding = 0, ...request }) {
    let passes = 0;
    model.decoder.forward = (...given) => {
      const random = randomNumbers(noise[passes++]);
      const rows = forward(...given);
      return random ? rows.map((row) => row.map((logit) => logit + rounding * random())) : rows;
    };
    const events = [];
    for (const step of eventStream(model, request))
      events.push(...step.map((event) => [passes - 1, event]));
    return events;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  let answer;
  try {
    answer = { value: answers[asked.what](asked) };
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
