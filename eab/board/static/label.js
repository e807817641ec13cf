// The words in a box: broken into lines, with the middle left out if the text is too long.

/** @import { Cell, Label } from "./types.d.ts" */
import { characterWidth, textWidth } from "./elements.js";

const ELLIPSIS = [" …", " "]; // a line may end after it
const ELLIPSIS_LENGTH = 3;
const LINE_BREAK = "↵"; // as the text of a token shows it
const NEW_LINE = -1; // among the lengths of words
const SHORTEST_END = 4; // characters; a shorter end of a text is useless
const LONGEST_WORD = 24; // characters; a longer one may be cut
const LONGEST_CODE = 60; // characters; texts without spaces in other scripts break anywhere

/** Pixels, and how many characters are left out. @typedef {{ lines: number, width: number, leftOut: number }} WrappedSize */
/** Characters that are left out. @typedef {{ from: number, to: number }} Gap */

/**
 * A character that is shown, or the ellipsis for those that are left out.
 * @typedef {{ text: string, from: number, to: number }} Glyph
 */

/**
 * The tokens as lines of whole words. Tokens behind an ellipsis share its width.
 * @param {string[]} pieces one per token
 * @param {number} perLine characters of a line
 * @param {number} most lines
 * @param {number} [shown] index of a token that must not be left out
 * @returns {Label}
 */
export function wrapTokens(pieces, perLine, most, shown = -1) {
  const lengths = pieces.map(charactersIn);
  const length = lengths.reduce((sum, one) => sum + one, 0);
  const seen = longestText(perLine, most) + 2 * LONGEST_WORD;
  const all =
    shown < 0 && length > 4 * seen ? bothEnds(pieces, length, 2 * seen) : [...pieces.join("")];
  /** @type {Gap[]} */
  let gaps = [];
  const lines = fitLines(perLine, most, (longest) => {
    gaps = gapsOf(lengths, all, longest, shown);
    return glyphsOf(all, gaps);
  });
  const places = placesOf(lines);
  let first = 0;
  const cells = lengths.map((length) => {
    const cell = cellOf(all, places, gaps, first, length);
    first += length;
    return cell;
  });
  const words = lines.map((line) => line.map(({ text }) => text).join(""));
  return { lines: words, width: Math.max(0, ...lines.map(widthOf)), cells };
}

/**
 * The characters of a long text without the middle, which is not shown anyway.
 * @param {string[]} pieces
 * @param {number} length of the text, in characters
 * @param {number} seen UTF-16 units at either end; some characters have two
 */
function bothEnds(pieces, length, seen) {
  const [head, tail] = [[...startOf(pieces, seen)], [...endOfPieces(pieces, seen)]];
  const all = new Array(length);
  for (const [index, character] of head.entries()) all[index] = character;
  for (const [index, character] of tail.entries()) all[length - tail.length + index] = character;
  return all;
}

/** @param {string} piece */
function charactersIn(piece) {
  let count = piece.length;
  for (let at = 0; at < piece.length; at += 1) {
    const code = piece.charCodeAt(at);
    if (code >= 0xd800 && code < 0xdc00) count -= 1; // the first of a character's two units
  }
  return count;
}

/**
 * The size of the result of `wrapTokens`, found without reading all of a long text.
 * @param {string} text
 * @param {number} perLine characters of a line
 * @param {number} most lines
 * @returns {WrappedSize}
 */
function wrappedSize(text, perLine, most) {
  const held = longestText(perLine, most);
  const head = [...text.slice(0, held + LONGEST_WORD)];
  const tail = [...text.slice(-held)];
  let leftOut = 0;
  const lines = fitLines(perLine, most, (longest) => {
    leftOut = Math.max(0, text.length - longest);
    if (!leftOut) return glyphsOf(head, []);
    const kept = keptEnds(longest);
    const begin = head.slice(0, endOfWords(head, kept.head));
    const shown = [...begin, ...ELLIPSIS, ...wordsAfter(lastOf(tail, kept.tail))];
    return shown.map((glyph) => ({ text: glyph, from: 0, to: 1 }));
  });
  return { lines: lines.length, width: Math.max(0, ...lines.map(widthOf)), leftOut };
}

/** Texts with what was found about each, as long as they are fitted and the font stays. */
export class FittedTexts {
  width = 0; // of a character
  /** @type {Map<string, FittedText>} */
  known = new Map();

  /** Only these are fitted now. @param {string[]} texts */
  keep(texts) {
    if (this.width !== characterWidth()) this.known.clear();
    this.width = characterWidth();
    const fitted = texts.map((text) => this.known.get(text) ?? new FittedText(text));
    this.known = new Map(fitted.map((one) => [one.text, one]));
    return fitted;
  }
}

/** A text, whose sizes are found once: a tree that grows or is recomputed keeps most of its texts. */
export class FittedText {
  /** @type {Map<string, WrappedSize>} */
  sizes = new Map();
  /** By the characters of a line. @type {Map<number, Label>} */
  ends = new Map();

  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.words = wordLengths(text);
    this.whole = wholeWord(text);
  }

  /** Its last words in this many lines, with room for words that do not fill them. @param {number} perLine characters @param {number} most lines */
  end(perLine, most) {
    const label =
      this.ends.get(perLine) ?? wrapTokens([endOf(this.text, perLine * (most - 1))], perLine, most);
    this.ends.set(perLine, label);
    return label;
  }

  /** What `wrappedSize` says. @param {number} perLine characters of a line @param {number} most lines */
  size(perLine, most) {
    const key = `${perLine} ${most}`;
    const size = this.sizes.get(key) ?? wrappedSize(this.text, perLine, most);
    this.sizes.set(key, size);
    return size;
  }
}

/**
 * The word lengths of a text, in characters, with NEW_LINE after each line of the text.
 * @param {string} text
 */
function wordLengths(text) {
  return text
    .replace(/^ /, "")
    .replace(/↵ ?(?=[^↵])/g, "↵ \n ") // older browsers lack lookbehind
    .split(" ")
    .map((word) => (word === "\n" ? NEW_LINE : [...word].length));
}

/**
 * The length of the longest word that is kept whole, at least 1.
 * @param {string} text
 */
function wholeWord(text) {
  const longest = (/** @type {string} */ word) =>
    /[^!-~]/.test(word) ? LONGEST_WORD : LONGEST_CODE;
  const words = text.split(/[ ↵]+/).map((word) => Math.min([...word].length, longest(word)));
  return Math.max(1, ...words);
}

/**
 * The number of lines that `wrapTokens` gives for a text that is not shortened, and the characters
 * of the longest line.
 * @param {number[]} words lengths of its words
 * @param {number} perLine characters of a line
 */
export function wrapped(words, perLine) {
  let [lines, longest, length] = [0, 0, perLine];
  for (const word of words) {
    if (word === NEW_LINE) {
      length = perLine;
      continue;
    }
    length += 1 + word;
    if (length > perLine) {
      lines += Math.max(1, Math.ceil(word / perLine));
      length = word % perLine || Math.min(word, perLine);
    }
    longest = Math.max(longest, word > perLine ? perLine : length);
  }
  return { lines, longest };
}

/**
 * The text, or as many of its last words as fit.
 * @param {string} text
 * @param {number} longest characters
 */
function endOf(text, longest) {
  const characters = [...text];
  if (characters.length <= longest) return text;
  const end = characters.slice(characters.length - longest + 1);
  const words = wordsAfter(end);
  return `…${(words.length ? words : end).join("")}`;
}

/**
 * The maximum number of characters; each line may also begin with a space that is not drawn.
 * @param {number} perLine characters of a line
 * @param {number} most lines
 */
function longestText(perLine, most) {
  return (perLine + 1) * most;
}

/**
 * As many characters of the text as fit into these lines.
 * @param {number} perLine characters of a line
 * @param {number} most lines
 * @param {(longest: number) => Glyph[]} shorten gives the text with at most this many characters
 */
function fitLines(perLine, most, shorten) {
  let longest = longestText(perLine, most);
  let lines = breakLines(shorten(longest), perLine);
  while (lines.length > most && longest > perLine) {
    longest -= Math.max(1, perLine >> 3); // whole words do not fill their lines
    lines = breakLines(shorten(longest), perLine);
  }
  if (lines.length <= most) return lines;
  // of a word and the ellipsis
  return breakLines(shorten(longest), perLine + ELLIPSIS_LENGTH, most);
}

/**
 * @param {string[]} pieces
 * @param {number} length characters
 */
function startOf(pieces, length) {
  let text = "";
  for (let at = 0; at < pieces.length && text.length < length; at += 1) text += pieces[at];
  return text;
}

/**
 * @param {string[]} pieces
 * @param {number} length characters
 */
function endOfPieces(pieces, length) {
  let text = "";
  for (let at = pieces.length - 1; at >= 0 && text.length < length; at -= 1)
    text = pieces[at] + text;
  return text;
}

/**
 * How many characters of a text that is too long are kept at its start and at its end.
 * @param {number} longest characters
 */
function keptEnds(longest) {
  const room = longest - ELLIPSIS_LENGTH;
  const head = Math.floor((longest * 3) / 5);
  return room - head < SHORTEST_END ? { head: room, tail: 0 } : { head, tail: room - head };
}

/** @param {string[]} characters @param {number} count */
function lastOf(characters, count) {
  return characters.slice(Math.max(0, characters.length - count));
}

/**
 * The end of the last whole word within `count` characters, or else of the first word.
 * @param {string[]} all characters
 * @param {number} count
 */
function endOfWords(all, count) {
  const space = all.lastIndexOf(" ", count);
  if (space > 0) return space;
  const next = all.indexOf(" ", 1);
  const end = next > 0 ? next : all.length;
  return end <= LONGEST_WORD ? end : count;
}

/** The characters after a partial word at the start. @param {string[]} characters */
function wordsAfter(characters) {
  const space = characters.indexOf(" ");
  return space >= 0 ? characters.slice(space + 1) : [];
}

/**
 * @param {string[]} all characters
 * @param {Gap[]} gaps those that are left out
 */
function glyphsOf(all, gaps) {
  /** @type {Glyph[]} */
  const glyphs = [];
  let next = 0;
  const showUpTo = (/** @type {number} */ end) => {
    for (; next < end; next += 1) glyphs.push({ text: all[next], from: next, to: next + 1 });
  };
  for (const { from, to } of gaps) {
    showUpTo(from);
    const [sign, space] = ELLIPSIS;
    glyphs.push({ text: sign, from, to }, { text: space, from: to, to });
    next = to;
  }
  showUpTo(all.length);
  return glyphs;
}

/**
 * Lines break after line breaks of the text, and at spaces. A longer word is cut.
 * @param {Glyph[]} glyphs
 * @param {number} perLine characters
 * @param {number} [most] lines; the last one does not end at a line break of the text
 * @returns {Glyph[][]}
 */
function breakLines(glyphs, perLine, most = Number.POSITIVE_INFINITY) {
  const lines = [];
  let rest = withoutSpace(glyphs);
  for (;;) {
    const end = lineEnd(rest, perLine, lines.length + 1 < most);
    if (end >= rest.length) return [...lines, rest];
    lines.push(rest.slice(0, end));
    rest = withoutSpace(rest.slice(end));
  }
}

/** A space at the beginning of a line has no width. @param {Glyph[]} glyphs */
function withoutSpace([first, ...others]) {
  return first ? [first.text === " " ? { ...first, text: "" } : first, ...others] : [];
}

/**
 * The index at which the first line of these glyphs ends.
 * @param {Glyph[]} glyphs
 * @param {number} perLine characters
 * @param {boolean} breaks whether at a line break of the text
 */
function lineEnd(glyphs, perLine, breaks) {
  let [end, length, last] = [0, 0, 0];
  for (; end < glyphs.length; end += 1) {
    const { text } = glyphs[end];
    const isAfterBreak = end > 0 && glyphs[end - 1].text === LINE_BREAK && text !== LINE_BREAK;
    if (isAfterBreak && breaks) return end;
    if (text.startsWith(" ")) last = end;
    length += text.length;
    if (length > perLine) return last || Math.max(1, end);
  }
  return end;
}

/** @param {Glyph[]} glyphs */
function widthOf(glyphs) {
  return glyphs.reduce((sum, { text }) => sum + textWidth(text), 0);
}

/**
 * The line and the left and right edges (pixels) of each character that is shown, and of each
 * ellipsis under the first character that it replaces.
 * @param {Glyph[][]} lines
 */
function placesOf(lines) {
  /** @type {Map<number, Cell>} */
  const places = new Map();
  for (const [line, glyphs] of lines.entries()) {
    let left = 0;
    for (const { text, from, to } of glyphs) {
      const right = left + textWidth(text);
      if (from < to) places.set(from, { line, left, right });
      left = right;
    }
  }
  return places;
}

/**
 * The place of characters that one gap leaves out: their share of its ellipsis; else null.
 * @param {Map<number, Cell>} places @param {Gap[]} gaps
 * @param {number} first index of the first character
 * @param {number} length @returns {Cell | null}
 */
function hiddenPlace(places, gaps, first, length) {
  const gap = gaps.find(({ from, to }) => first >= from && first + length <= to);
  const place = gap && places.get(gap.from);
  if (!place) return null;
  const width = (place.right - place.left) / (gap.to - gap.from);
  const left = place.left + (first - gap.from) * width;
  return { line: place.line, left, right: left + length * width };
}

/**
 * The place of a token. If the token spans two lines, its place is on the first line of its word,
 * because the space before the word may belong to the line above.
 * @param {string[]} all @param {Map<number, Cell>} places @param {Gap[]} gaps
 * @param {number} first index of its first character
 * @param {number} length @returns {Cell}
 */
function cellOf(all, places, gaps, first, length) {
  const at = (/** @type {number} */ index) =>
    hiddenPlace(places, gaps, index, 1) ?? places.get(index);
  if (!length) {
    const before = at(first - 1);
    const right = before?.right ?? 0;
    return { line: before?.line ?? 0, left: right, right };
  }
  const hidden = hiddenPlace(places, gaps, first, length);
  if (hidden) return hidden; // at once, because a long text has thousands of these
  let word = 0;
  while (word < length - 1 && all[first + word] === " ") word += 1;
  if (all[first + word] === " ") word = 0;
  const line = at(first + word)?.line ?? 0;
  let [begin, end] = [0, length - 1];
  while (at(first + begin)?.line !== line) begin += 1;
  while (at(first + end)?.line !== line) end -= 1;
  return { line, left: at(first + begin)?.left ?? 0, right: at(first + end)?.right ?? 0 };
}

/**
 * The characters to leave out: the middle, or those around the token that must be shown.
 * @param {number[]} lengths of the tokens, in characters
 * @param {string[]} all characters of all tokens
 * @param {number} longest characters
 * @param {number} shown index of a token, or -1
 * @returns {Gap[]}
 */
function gapsOf(lengths, all, longest, shown) {
  const { length } = all;
  if (length <= longest) return [];
  const { head, tail } = keptEnds(longest);
  const from = endOfWords(all, head);
  const middle = { from, to: Math.max(from, length - wordsAfter(lastOf(all, tail)).length) };
  if (shown < 0) return middle.from < middle.to ? [middle] : [];
  const begin = lengths.slice(0, shown).reduce((sum, length) => sum + length, 0);
  const end = begin + lengths[shown];
  if (end <= middle.from || begin >= middle.to) return [middle];
  const room = Math.max(0, longest - (end - begin) - 2 * ELLIPSIS_LENGTH);
  const around = [
    { from: 0, to: Math.max(0, begin - Math.ceil(room / 2)) },
    { from: Math.min(length, end + Math.floor(room / 2)), to: length },
  ];
  return around.filter((gap) => gap.to > gap.from);
}
