// The exact text of tokens, as eab/token_text.py keeps it: a byte that is only a part of a character
// is a lone surrogate (U+DC80 to U+DCFF), so texts of tokens can be joined.

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const LONE = /[\ud800-\udfff]/u;
const ODD =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters get a sign
  /[\0-\x1f\x7f-\x9f\ufffe\uffff\u202a-\u202e\u2066-\u2069\u200e\u200f\ud800-\udfff]/gu;
/** @type {Record<string, string>} */
const SIGNS = { "\n": "↵", "\r": "␍", "\t": "⇥" };

/** The bytes of a token's exact text. @param {string} text @returns {number[]} */
export function toBytes(text) {
  if (!LONE.test(text)) return [...encoder.encode(text)];
  return [...text].flatMap((character) => {
    const code = character.codePointAt(0) ?? 0;
    return code >= 0xdc80 && code <= 0xdcff ? [code - 0xdc00] : [...encoder.encode(character)];
  });
}

/** How many bytes the character has that begins with this one. @param {number} first */
export function characterLength(first) {
  return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/** The exact text of these bytes. @param {number[]} bytes */
export function fromBytes(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const length = characterLength(bytes[at]);
    try {
      text += decoder.decode(new Uint8Array(bytes.slice(at, at + length)));
      at += length;
    } catch {
      text += String.fromCharCode(0xdc00 + bytes[at++]);
    }
  }
  return text;
}

/** The text for display: line breaks as signs, lone bytes as ⟨E2⟩. @param {string} text */
export function visible(text) {
  return text.replace(ODD, (character) => {
    const code = character.charCodeAt(0);
    const hex = (code >= 0xdc80 && code <= 0xdcff ? code - 0xdc00 : code).toString(16);
    if (code >= 0xdc80 && code <= 0xdcff) return `⟨${hex.toUpperCase()}⟩`;
    return SIGNS[character] ?? `⟨U+${hex.toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Joined texts for display: bytes that complete a character become it. @param {string} text */
export function visibleJoin(text) {
  return visible(LONE.test(text) ? fromBytes(toBytes(text)) : text);
}

/** Bytes as a text that can be searched. @param {number[]} bytes */
function searchable(bytes) {
  return String.fromCharCode(...bytes);
}

/** The stop strings of a run, searched token by token in the exact bytes of a text. */
export class StopStrings {
  /** @param {string[]} stop */
  constructor(stop) {
    this.stop = stop.map((text) => searchable(toBytes(text)));
    this.longest = Math.max(1, ...this.stop.map((text) => text.length)) - 1;
  }

  /**
   * @param {string} tail what the last search returned @param {string} text of the next token
   * @returns {{ tail: string, cut: number }} cut: how many bytes to leave out at the end
   */
  search(tail, text) {
    const window = tail + searchable(toBytes(text));
    const places = this.stop.map((stop) => window.indexOf(stop)).filter((place) => place >= 0);
    const cut = places.length ? window.length - Math.min(...places) : 0;
    return { tail: window.slice(Math.max(0, window.length - this.longest)), cut };
  }
}
