// How wide texts are, and texts made to fit.

/** @import { Label } from "./types.d.ts" */

const FONT_SIZE = 13; // px, as `.label` in tree.css

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
 * The text of the tokens, with its middle left out if it is too long. The tokens that are left out
 * share the width of the ellipsis.
 * @param {string[]} pieces one per token
 * @param {number} longest characters
 * @returns {Label}
 */
export function shorten(pieces, longest) {
  const characters = pieces.map((piece) => [...piece]);
  const all = characters.flat();
  const fits = all.length <= longest;
  const head = fits ? all.length : Math.floor((longest * 3) / 5);
  const tail = fits ? all.length : all.length - (longest - head - 3);
  const ellipsis = fits ? "" : " … ";
  const edges = [0]; // left edge of each character
  all.forEach((character, index) => {
    const hidden = index >= head && index < tail;
    const width = hidden ? textWidth(ellipsis) / (tail - head) : textWidth(character);
    edges.push(edges[index] + width);
  });
  let first = 0;
  const cells = characters.map((piece) => {
    const left = edges[first];
    first += piece.length;
    return { left, right: edges[first] };
  });
  const text = all.slice(0, head).join("") + ellipsis + all.slice(tail).join("");
  return { text, width: edges[all.length], cells };
}
