// Creates HTML and SVG elements instead of parsing text, so model output stays text.

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
