// Texts in pixels: numbers as text, the widths of texts, and texts cut to a width.

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

export const FONT_SIZE = 13; // px, as `.label` in tree.css

const SAMPLE = "The quick brown fox jumps over the lazy dog, and then it sleeps in the sun.";

const pen = /** @type {CanvasRenderingContext2D} */ (
  document.createElement("canvas").getContext("2d")
);
const widths = /** @type {Map<string, number>} */ (new Map());
let measuredFamily = "";
let meanWidth = 0; // px per character; 0 until measured

/** @param {string} family */
export function setTextFont(family) {
  if (measuredFamily === family) return;
  measuredFamily = family;
  pen.font = `${FONT_SIZE}px ${family}`;
  widths.clear();
  meanWidth = 0;
}

/**
 * The width in pixels. A canvas measures without laying out the page, and each character only once.
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

/** The mean width of a character, in pixels. */
export function characterWidth() {
  meanWidth ||= textWidth(SAMPLE) / SAMPLE.length;
  return meanWidth;
}

/**
 * The text, or as much of its start as fits.
 * @param {string} text
 * @param {number} room pixels
 */
export function clip(text, room) {
  const more = textWidth("…");
  let [width, at, end] = [0, 0, 0]; // end: of the part that fits with the ellipsis
  for (const character of text) {
    width += textWidth(character);
    if (width > room) return end ? `${text.slice(0, end)}…` : "";
    at += character.length;
    if (width + more <= room) end = at;
  }
  return text;
}
