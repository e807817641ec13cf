// Creates HTML and SVG elements, and buttons, instead of parsing text, so model output stays text;
// and measures texts in pixels and cuts them to a width.

/** @import { Attributes } from "./types.d.ts" */

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Attributes} [attributes]
 * @param {...(string | Node)} content
 */
export function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  set(made, attributes);
  made.append(...content);
  return made;
}

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} name
 * @param {Attributes} [attributes]
 * @param {...(string | Node)} content
 */
export function shape(name, attributes = {}, ...content) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  set(made, attributes);
  made.append(...content);
  return made;
}

/** Set the attributes that differ. @param {Element} node @param {Attributes} attributes */
export function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    const wanted = String(value);
    if (node.getAttribute(key) !== wanted) node.setAttribute(key, wanted);
  }
}

/** Copies of these shapes, which fade and are then removed. @param {...SVGElement} shapes */
export function fading(...shapes) {
  const copies = shapes.map((one) => one.cloneNode(true));
  const group = shape("g", { class: "fading", "aria-hidden": "true" }, ...copies);
  group.addEventListener("animationend", () => group.remove());
  return group;
}

/**
 * Path data of a diamond.
 * @param {number} x middle
 * @param {number} y middle
 * @param {number} size half its width
 */
export function diamond(x, y, size) {
  return `M${x.toFixed(1)} ${y - size}l${size} ${size}l${-size} ${size}l${-size} ${-size}Z`;
}

// Drawn in a 16-unit square in the text colour; emoji would have their own colours and sizes.
const ICONS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  back: "M10 2l1.5 1.5L7 8l4.5 4.5L10 14 4 8z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  forward: "M6 2l6 6-6 6-1.5-1.5L9 8 4.5 3.5z",
  last: "M11 3h2v10h-2zM3 3l7 5-7 5z",
  zoomOut: "M3 7.2h10v1.6H3z",
  zoomIn: "M7.2 3h1.6v4.2H13v1.6H8.8V13H7.2V8.8H3V7.2h4.2z",
  fullScreen: "M2 2h5v1.6H3.6V7H2zM9 2h5v5h-1.6V3.6H9zM2 9h1.6v3.4H7V14H2zM12.4 9H14v5H9v-1.6h3.4z",
  download: "M7.2 2h1.6v6.2l2.1-2.1L12 7.2l-4 4-4-4 1.1-1.1 2.1 2.1zM3 12.4h10V14H3z",
  link: "M6.5 4.5h-2a3.5 3.5 0 000 7h2V10h-2a2 2 0 010-4h2zM9.5 4.5h2a3.5 3.5 0 010 7h-2V10h2a2 2 0 000-4h-2zM5.5 7.2h5v1.6h-5z",
  close:
    "M4.2 3.1L8 6.9l3.8-3.8 1.1 1.1L9.1 8l3.8 3.8-1.1 1.1L8 9.1l-3.8 3.8-1.1-1.1L6.9 8 3.1 4.2z",
};

/** @typedef {keyof typeof ICONS} IconName */

/** @param {IconName} name */
export function icon(name) {
  const path = shape("path", { d: ICONS[name] });
  return shape("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}

/**
 * A button with words; its name for screen readers starts with them.
 * @param {string} words @param {string} help @param {() => void} action
 */
export function wordButton(words, help, action) {
  return button(words, help, `${words}: ${help}`, action);
}

/** @param {IconName} name @param {string} help @param {() => void} action */
export function iconButton(name, help, action) {
  return button(icon(name), help, help, action);
}

/**
 * @param {string | SVGElement} content @param {string} title @param {string} label
 * @param {() => void} action
 */
export function button(content, title, label, action) {
  const made = element("button", { type: "button", title, "aria-label": label }, content);
  made.onclick = action;
  return made;
}

/**
 * Set whether a toggle button appears switched on.
 * @param {HTMLButtonElement} node @param {boolean} pressed
 */
export function setPressed(node, pressed) {
  node.setAttribute("aria-pressed", String(pressed));
}

export const FONT_SIZE = 13; // px, as `.label` in pictures.css

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
