// Numbers and texts in sentences, as eab/formatting.py writes them; and the exact text of tokens,
// as eab/token_text.py keeps it: a byte that is only a part of a character is a lone surrogate
// (U+DC80 to U+DCFF), so texts of tokens can be joined.

const grouped = new Intl.NumberFormat("en-US");

/** As Python rounds: of two equally close numbers, the even one. @param {number} value */
export function roundEven(value) {
  const rounded = Math.round(value);
  return Math.abs(value % 1) === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}

/** @param {number} value @param {number} digits after the point */
export function fixed(value, digits) {
  const scaled = value * 10 ** digits;
  const isTie = Math.abs(scaled % 1) === 0.5 && Number.isInteger(value * 2 ** (digits + 1));
  return (isTie ? roundEven(scaled) / 10 ** digits : value).toFixed(digits);
}

/** 0.125, 1 -> "12.5%" @param {number} share @param {number} digits */
export function percentage(share, digits) {
  return `${fixed(100 * share, digits)}%`;
}

/** 1, "path" -> "1 path"; 2000, "pass" -> "2,000 passes" @param {number} count @param {string} thing */
export function counted(count, thing) {
  const ending = /(s|ch)$/.test(thing) ? "es" : "s";
  return `${grouped.format(count)} ${thing}${count === 1 ? "" : ending}`;
}

/** 1536 -> "1.5 KiB" @param {number} count */
export function humanBytes(count) {
  let value = count;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (value < 1024) return `${fixed(value, unit === "B" ? 0 : 1)} ${unit}`;
    value /= 1024;
  }
  return `${fixed(value, 1)} GiB`;
}

/** Two numbers with as many decimals as tell them apart. @param {number} a @param {number} b */
export function apart(a, b) {
  for (let digits = 2; digits < 7; digits++) {
    if (fixed(a, digits) !== fixed(b, digits)) return [fixed(a, digits), fixed(b, digits)];
  }
  return [fixed(a, 2), fixed(b, 2)];
}

/** "a", "b", "c" -> "a, b and c" @param {string[]} words */
export function listed(words) {
  return words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words.join("");
}

/** The start of a text, cut between two words. @param {string} text @param {number} longest */
export function excerpt(text, longest) {
  const all = [...text];
  if (all.length <= longest) return text;
  const space = all.slice(0, longest - 1).lastIndexOf(" ");
  const end = space >= Math.floor(longest / 2) ? space : longest - 2;
  return `${all.slice(0, end).join("").trimEnd()} …`;
}

/** The end of a longer text, cut between two words. @param {string} text @param {number} longest */
export function ending(text, longest) {
  const end = [...text].slice(-longest);
  return end.slice(end.slice(0, Math.floor(longest / 2)).indexOf(" ") + 1).join("");
}

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

/** @param {number} count */
export function bytes(count) {
  if (count < 1024) return `${count.toFixed(0)} B`;
  let value = count / 1024;
  for (const unit of ["KiB", "MiB"]) {
    if (value < 1024) return `${value >= 100 ? value.toFixed(0) : +value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} GiB`;
}

/** @param {number} share negative: not known */
export function percent(share) {
  if (share < 0) return "not known";
  if (share >= 0.0995) return `${(100 * share).toFixed(0)}%`;
  return share >= 0.00095 ? `${(100 * share).toFixed(1)}%` : "<0.1%";
}

/**
 * The entropy of a token. An imported run may know no more than the least that it can be.
 * @param {import("./types.d.ts").Token} token
 */
export function natsOf({ entropy, whole }) {
  if (entropy < 0) return "not known";
  return `${entropy === whole?.low ? "at least " : ""}${entropy.toFixed(2)} nats`;
}
