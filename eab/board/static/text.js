// How wide texts are, and texts made to fit.

/** @import { Label, Token } from "./types.d.ts" */

export const FONT_SIZE = 13; // px, as `.label` in tree.css
const ELLIPSIS = " … ";

const pen = /** @type {CanvasRenderingContext2D} */ (
  document.createElement("canvas").getContext("2d")
);
const widths = /** @type {Map<string, number>} */ (new Map());
let measuredFamily = "";

/** @param {string} family */
export function setTextFont(family) {
  if (measuredFamily === family) return;
  measuredFamily = family;
  pen.font = `${FONT_SIZE}px ${family}`;
  widths.clear();
}

/**
 * Width in pixels. A canvas measures without laying out the page, and each character only once.
 * @param {string} text
 */
export function textWidth(text) {
  let sum = 0;
  for (const character of text) {
    let width = widths.get(character);
    if (width === undefined) {
      width = pen.measureText(character).width;
      widths.set(character, width);
    }
    sum += width;
  }
  return sum;
}

/**
 * The text, or as much of its beginning as fits.
 * @param {string} text
 * @param {number} room pixels
 */
export function clip(text, room) {
  if (textWidth(text) <= room) return text;
  const characters = [...text];
  while (characters.length && textWidth(`${characters.join("")}…`) > room) characters.pop();
  return characters.length ? `${characters.join("")}…` : "";
}

/**
 * The text, or as much of its end as this many characters hold.
 * @param {string} text
 * @param {number} longest characters
 */
export function endOf(text, longest) {
  const characters = [...text];
  if (characters.length <= longest) return text;
  return `…${characters.slice(characters.length - longest + 1).join("")}`;
}

/**
 * How many characters of the beginning and of the end are kept of a text that is too long.
 * @param {number} longest characters
 */
function keptEnds(longest) {
  const head = Math.floor((longest * 3) / 5);
  return { head, tail: longest - head - ELLIPSIS.length };
}

/**
 * The width of what `shorten` makes of these tokens, without looking at all of a long text.
 * @param {Token[]} tokens
 * @param {number} longest characters
 */
export function shortWidth(tokens, longest) {
  const length = tokens.reduce((sum, { piece }) => sum + piece.length, 0);
  if (length <= longest) return textWidth(tokens.map(({ piece }) => piece).join(""));
  const ends = keptEnds(longest);
  let [head, tail] = ["", ""];
  for (let at = 0; head.length < ends.head; at += 1) head += tokens[at].piece;
  for (let at = tokens.length - 1; tail.length < ends.tail; at -= 1) tail = tokens[at].piece + tail;
  return textWidth(head.slice(0, ends.head) + ELLIPSIS + tail.slice(-ends.tail));
}

/**
 * The text of the tokens, with its middle left out if it is too long. The tokens that are left out
 * share the width of the ellipsis.
 * @param {string[]} pieces one per token
 * @param {number} longest characters
 * @param {number} [shown] index of a token that must not be left out
 * @returns {Label}
 */
export function shorten(pieces, longest, shown = -1) {
  const characters = pieces.map((piece) => [...piece]);
  const all = characters.flat();
  const gaps = gapsOf(characters, all.length, longest, shown);
  const edges = [0]; // left edge of each character
  for (const [index, character] of all.entries()) {
    const gap = gaps.find(({ from, to }) => index >= from && index < to);
    const width = gap ? textWidth(ELLIPSIS) / (gap.to - gap.from) : textWidth(character);
    edges.push(edges[index] + width);
  }
  let first = 0;
  const cells = characters.map((piece) => {
    const left = edges[first];
    first += piece.length;
    return { left, right: edges[first] };
  });
  let text = "";
  let next = 0;
  for (const { from, to } of gaps) {
    text += all.slice(next, from).join("") + ELLIPSIS;
    next = to;
  }
  return { text: text + all.slice(next).join(""), width: edges[all.length], cells };
}

/**
 * Which characters are left out: the middle, or what is around the token that must be shown.
 * @param {string[][]} characters of each token
 * @param {number} length of the whole text
 * @param {number} longest characters
 * @param {number} shown index of a token, or -1
 * @returns {{ from: number, to: number }[]}
 */
function gapsOf(characters, length, longest, shown) {
  if (length <= longest) return [];
  const { head, tail } = keptEnds(longest);
  const middle = { from: head, to: length - tail };
  if (shown < 0) return [middle];
  const begin = characters.slice(0, shown).reduce((sum, piece) => sum + piece.length, 0);
  const end = begin + characters[shown].length;
  if (end <= middle.from || begin >= middle.to) return [middle];
  const room = Math.max(0, longest - (end - begin) - 2 * ELLIPSIS.length);
  const from = Math.max(0, begin - Math.ceil(room / 2));
  const to = Math.min(length, end + Math.floor(room / 2));
  const around = [
    { from: 0, to: from },
    { from: to, to: length },
  ];
  return around.filter((gap) => gap.to > gap.from);
}
