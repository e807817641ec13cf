// Mirrors eab/engine/models/loading.py and eab/engine/build.py: the model from its files, and the
// token ids that a run starts from.

import { Decoder } from "./decoder.js";
import { EabError } from "./errors.js";
import { Tokenizer } from "./tokenizer.js";

/**
 * @typedef {Record<string, any>} Config The settings of a run, by their names in Python.
 * @typedef {{
 *   card: { name: string, vocab_size: number }, context: number, stop_ids: number[],
 *   shape: import("./decoder.js").Shape, settings: Config,
 *   files: Record<string, { bytes: number, sha256: string }>,
 * }} Manifest `model.json`, written by eab/share/live/__init__.py; `settings` are those that a run starts with.
 * @typedef {{ prompt: string, settings: Config, tokenIds?: number[], continued?: number[] }} Request
 * What a run starts from: settings that differ, the tokens of the prompt, if they are known, and
 * those that are kept after it.
 */

export class Model {
  /** @param {Manifest} manifest @param {Record<string, Uint8Array>} files which are not damaged */
  constructor({ card, context, stop_ids, shape, settings }, files) {
    this.card = card;
    this.context = context;
    this.stopIds = new Set(stop_ids);
    this.settings = settings;
    this.decoder = new Decoder(shape, readWeights(files["model.safetensors"]));
    this.tokenizer = new Tokenizer(JSON.parse(new TextDecoder().decode(files["tokenizer.json"])));
    const longest = Math.max(...this.tokenizer.pieces.map((piece) => piece.length));
    this.mostBytes = longest * context; // of a text; a longer one would also take long to merge
  }

  /**
   * The token ids that the run starts from: the prompt's, then `continued`.
   * @param {Request} request @param {number} newTokens that may follow
   */
  encode({ prompt, tokenIds, continued = [] }, newTokens) {
    if (continued.some((token) => this.stopIds.has(token))) {
      throw new EabError(
        "that token ends the text, so it cannot be continued. Choose another token",
      );
    }
    const ids = [...(tokenIds ?? this.encodePrompt(prompt)), ...continued];
    const room = this.context - newTokens;
    if (ids.length <= room) return ids;
    const remedy = continued.length ? "Grow from an earlier token" : "Shorten it";
    throw new EabError(
      `the text to continue has ${ids.length} tokens, but the story model reads at most ${room}, ` +
        `so that ${newTokens} new ones fit in. ${remedy}`,
    );
  }

  /** @param {string} prompt */
  encodePrompt(prompt) {
    if (!prompt.trim()) {
      throw new EabError("the prompt is empty; write a few words for the model to continue");
    }
    if (new TextEncoder().encode(prompt).length > this.mostBytes) {
      throw new EabError(
        `the prompt is longer than what the story model reads, ${this.context} tokens. Shorten it`,
      );
    }
    if (!/\p{Surrogate}/u.test(prompt)) return this.tokenizer.encode(prompt);
    throw new EabError("the prompt is not valid text; type it again");
  }
}

/** The tensors of a safetensors file: float16 there, float32 here, which is exact. @param {Uint8Array} file */
function readWeights(file) {
  const start = 8 + Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, start)));
  const wide = Float32Array.from({ length: 2 ** 16 }, (_, bits) => float16(bits));
  const weights = /** @type {Record<string, Float32Array>} */ ({});
  for (const [name, { data_offsets: place }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const halves = new Uint16Array(file.slice(start + place[0], start + place[1]).buffer);
    weights[name] = new Float32Array(halves.length);
    for (const [at, bits] of halves.entries()) weights[name][at] = wide[bits];
  }
  return weights;
}

/** The finite number that these bits stand for. @param {number} bits */
function float16(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  const size = exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14;
  return bits >> 15 ? -size : size;
}
