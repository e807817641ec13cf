// The words in a box: broken into lines, with the middle left out if they are too long.

/** @import { Cell, Label } from "./types.d.ts" */
import { textWidth } from "./text.js";

const ELLIPSIS = [" …", " "]; // a line may end after it
const ELLIPSIS_LENGTH = 3;
const LINE_BREAK = "↵"; // as the text of a token shows it
const SHORTEST_END = 4; // characters; less of the end of a text says nothing
export const LONGEST_WORD = 24; // characters; a longer one may be cut

/**
 * A character that is shown, or the ellipsis of those that are left out.
 * @typedef {{ text: string, from: number, to: number }} Glyph
 */

/**
 * The tokens as lines of whole words. Those behind an ellipsis share its width.
 * @param {string[]} pieces one per token
 * @param {number} perLine characters of a line
 * @param {number} most lines
 * @param {number} [shown] index of a token that must not be left out
 * @returns {Label}
 */
export function wrapTokens(pieces, perLine, most, shown = -1) {
  const characters = pieces.map((piece) => [...piece]);
  const all = characters.flat();
  const lines = fitLines(perLine, most, (longest) => {
    return glyphsOf(all, gapsOf(characters, all, longest, shown));
  });
  const places = placesOf(lines);
  let first = 0;
  const cells = characters.map((piece) => {
    const cell = cellOf(all, places, first, piece.length);
    first += piece.length;
    return cell;
  });
  return { lines: lines.map(textOfLine), width: Math.max(0, ...lines.map(widthOf)), cells };
}

/**
 * The room that `wrapTokens` needs, without looking at all of a long text.
 * @param {string[]} pieces one per token
 * @param {number} perLine characters of a line
 * @param {number} most lines
 * @returns {{ lines: number, width: number, leftOut: number }} pixels; how many characters are left
 *   out
 */
export function wrappedSize(pieces, perLine, most) {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const held = longestText(perLine, most);
  const head = [...startOf(pieces, held + LONGEST_WORD)];
  const tail = [...endOfPieces(pieces, held)];
  let leftOut = 0;
  const lines = fitLines(perLine, most, (longest) => {
    leftOut = Math.max(0, length - longest);
    if (!leftOut) return glyphsOf(head, []);
    const kept = keptEnds(longest);
    const begin = head.slice(0, endOfWords(head, kept.head));
    const text = [...begin, ...ELLIPSIS, ...wordsAfter(lastOf(tail, kept.tail))];
    return text.map((glyph) => ({ text: glyph, from: 0, to: 1 }));
  });
  return { lines: lines.length, width: Math.max(0, ...lines.map(widthOf)), leftOut };
}

/**
 * The lengths of the words of a text, in characters; a line may also end after a line break.
 * @param {string} text
 */
export function wordLengths(text) {
  return text
    .replace(/^ /, "")
    .replace(/↵(?=[^↵ ])/g, "↵ ") // older browsers know no lookbehind
    .split(" ")
    .map((word) => [...word].length);
}

/**
 * What `wrapTokens` makes of a text that is not shortened: how many lines, and the characters of the
 * longest.
 * @param {number[]} words lengths of its words
 * @param {number} perLine characters of a line
 */
export function wrapped(words, perLine) {
  let [lines, longest, length] = [0, 0, perLine];
  for (const word of words) {
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
export function endOf(text, longest) {
  const characters = [...text];
  if (characters.length <= longest) return text;
  const end = characters.slice(characters.length - longest + 1);
  const words = wordsAfter(end);
  return `…${(words.length ? words : end).join("")}`;
}

/**
 * Characters at most, as each line may begin with a space that is not drawn.
 * @param {number} perLine characters of a line
 * @param {number} most lines
 */
function longestText(perLine, most) {
  return (perLine + 1) * most;
}

/**
 * As many characters as these lines hold.
 * @param {number} perLine characters of a line
 * @param {number} most lines
 * @param {(longest: number) => Glyph[]} shorten the text with at most so many characters
 */
function fitLines(perLine, most, shorten) {
  let longest = longestText(perLine, most);
  let lines = breakLines(shorten(longest), perLine);
  while (lines.length > most && longest > perLine) {
    longest -= Math.max(1, perLine >> 3); // whole words do not fill their lines
    lines = breakLines(shorten(longest), perLine);
  }
  if (lines.length <= most) return lines;
  return breakLines(shorten(longest), perLine + ELLIPSIS_LENGTH); // a word and the ellipsis
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
 * How many characters of the beginning and of the end are kept of a text that is too long.
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
 * Where the last whole word ends that so many characters hold, or else the first word.
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

/** Without the part of a word at the beginning. @param {string[]} characters */
function wordsAfter(characters) {
  const space = characters.indexOf(" ");
  return space >= 0 ? characters.slice(space + 1) : [];
}

/**
 * @param {string[]} all characters
 * @param {{ from: number, to: number }[]} gaps what is left out of them
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
 * Lines break at spaces, and after line breaks of the text. A longer word is cut.
 * @param {Glyph[]} glyphs
 * @param {number} perLine characters
 * @returns {Glyph[][]}
 */
function breakLines(glyphs, perLine) {
  const lines = [];
  let rest = withoutSpace(glyphs);
  for (let end = lineEnd(rest, perLine); end < rest.length; end = lineEnd(rest, perLine)) {
    lines.push(rest.slice(0, end));
    rest = withoutSpace(rest.slice(end));
  }
  return [...lines, rest];
}

/** A space at the beginning of a line has no width. @param {Glyph[]} glyphs */
function withoutSpace([first, ...others]) {
  return first ? [first.text === " " ? { ...first, text: "" } : first, ...others] : [];
}

/**
 * Where the first line of these ends.
 * @param {Glyph[]} glyphs
 * @param {number} perLine characters
 */
function lineEnd(glyphs, perLine) {
  let [end, length, last] = [0, 0, 0];
  for (; end < glyphs.length; end += 1) {
    const { text } = glyphs[end];
    const isAfterBreak = end > 0 && glyphs[end - 1].text === LINE_BREAK && text !== LINE_BREAK;
    if (text.startsWith(" ") || isAfterBreak) last = end;
    length += text.length;
    if (length > perLine) return last || Math.max(1, end);
  }
  return end;
}

/** @param {Glyph[]} glyphs */
function textOfLine(glyphs) {
  return glyphs.map(({ text }) => text).join("");
}

/** @param {Glyph[]} glyphs */
function widthOf(glyphs) {
  return glyphs.reduce((sum, { text }) => sum + textWidth(text), 0);
}

/**
 * Line, left and right edge of each character, in pixels.
 * @param {Glyph[][]} lines @returns {Cell[]}
 */
function placesOf(lines) {
  /** @type {Cell[]} */
  const places = [];
  for (const [line, glyphs] of lines.entries()) {
    let left = 0;
    for (const { text, from, to } of glyphs) {
      if (from === to) left += textWidth(text);
      const width = textWidth(text) / (to - from);
      for (let index = from; index < to; index += 1) {
        places.push({ line, left, right: left + width });
        left += width;
      }
    }
  }
  return places;
}

/**
 * Where a token stands. One that is cut in two has its place on its first line, where its word
 * begins: the space before it may belong to the line above.
 * @param {string[]} all @param {Cell[]} places
 * @param {number} first index of its first character
 * @param {number} length @returns {Cell}
 */
function cellOf(all, places, first, length) {
  const own = places.slice(first, first + length);
  if (!own.length) {
    const right = places[first - 1]?.right ?? 0;
    return { line: places[first - 1]?.line ?? 0, left: right, right };
  }
  const word = Math.max(
    0,
    own.findIndex((_, index) => all[first + index] !== " "),
  );
  const { line } = own[word];
  const onLine = own.filter((place) => place.line === line);
  return { line, left: onLine[0].left, right: onLine[onLine.length - 1].right };
}

/**
 * Which characters are left out: the middle, or what is around the token that must be shown.
 * @param {string[][]} characters of each token
 * @param {string[]} all the same in one list
 * @param {number} longest characters
 * @param {number} shown index of a token, or -1
 * @returns {{ from: number, to: number }[]}
 */
function gapsOf(characters, all, longest, shown) {
  const { length } = all;
  if (length <= longest) return [];
  const { head, tail } = keptEnds(longest);
  const from = endOfWords(all, head);
  const middle = { from, to: Math.max(from, length - wordsAfter(lastOf(all, tail)).length) };
  if (shown < 0) return middle.from < middle.to ? [middle] : [];
  const begin = characters.slice(0, shown).reduce((sum, piece) => sum + piece.length, 0);
  const end = begin + characters[shown].length;
  if (end <= middle.from || begin >= middle.to) return [middle];
  const room = Math.max(0, longest - (end - begin) - 2 * ELLIPSIS_LENGTH);
  const around = [
    { from: 0, to: Math.max(0, begin - Math.ceil(room / 2)) },
    { from: Math.min(length, end + Math.floor(room / 2)), to: length },
  ];
  return around.filter((gap) => gap.to > gap.from);
}
