// Mirrors what eab/engine/models/prompts.py makes of `tokenizer.json`: digits apart, the
// words of GPT-2, byte pairs; no normalization.

import { fromBytes } from "../../../board/static/formatting.js";

const WORDS =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const INSIDE_BOS = /(?<=<)(?=\|endoftext\|>)/;
const DIGIT = /(\p{N})/u;
// The printable character that stands for each byte in the vocabulary
const SIGNS = /** @type {string[]} */ ([]);
for (let byte = 0, others = 256; byte < 256; byte++) {
  const isPrinted = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  SIGNS.push(String.fromCharCode(isPrinted ? byte : others++));
}

export class Tokenizer {
  /** @param {{ model: { vocab: Record<string, number>, merges: string[][] }, added_tokens: { content: string }[] }} file */
  constructor({ model, added_tokens: [{ content }] }) {
    this.vocab = model.vocab;
    this.pieces = Object.keys(model.vocab).sort(
      (one, other) => this.vocab[one] - this.vocab[other],
    );
    this.ranks = new Map(model.merges.map((pair, rank) => [pair.join(" "), rank]));
    this.bos = content; // the only control token; it begins and ends a text
  }

  /**
   * Token ids of a text to continue, after one BOS token. One that somebody wrote is ordinary text:
   * it is cut after its first character.
   * @param {string} prompt
   */
  encode(prompt) {
    const text = prompt.startsWith(this.bos) ? prompt.slice(this.bos.length) : prompt;
    const [first, ...others] = text.split(INSIDE_BOS);
    const after = others.flatMap((part) => this.following(part));
    return [this.vocab[this.bos], ...this.ordinary(first), ...after];
  }

  /** Token ids of a text in the middle of another. @param {string} text */
  following(text) {
    const [before, ...ids] = this.ordinary(`\n${text}`);
    return before === this.ordinary("\n")[0] ? ids : this.ordinary(text);
  }

  /** @param {string} text @returns {number[]} */
  ordinary(text) {
    const words = text.split(DIGIT).flatMap((part) => part.match(WORDS) ?? []);
    return words.flatMap((word) => this.merged(word).map((piece) => this.vocab[piece]));
  }

  /** Merge the pair with the lowest rank, until none is left. @param {string} word */
  merged(word) {
    const pieces = Array.from(new TextEncoder().encode(word), (byte) => SIGNS[byte]);
    for (;;) {
      const pairs = pieces.slice(1).map((piece, at) => `${pieces[at]} ${piece}`);
      const ranks = pairs.map((pair) => this.ranks.get(pair) ?? Infinity);
      const lowest = ranks.reduce((one, other) => Math.min(one, other), Infinity);
      if (lowest === Infinity) return pieces;
      const at = ranks.indexOf(lowest);
      pieces.splice(at, 2, pieces[at] + pieces[at + 1]);
    }
  }

  /** @param {number} token */
  isSpecial(token) {
    return this.pieces[token] === this.bos;
  }

  /** The exact text of a token. @param {number} token */
  text(token) {
    if (this.isSpecial(token)) return this.bos;
    return fromBytes(Array.from(this.pieces[token], (sign) => SIGNS.indexOf(sign)));
  }
}
