// A picture of the board as a file: an SVG that needs nothing else, or a PNG of it.

/** @import { PictureArea } from "./types.d.ts" */
import { element, set, shape } from "./elements.js";

const STYLES = [
  "display",
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "opacity",
  "paint-order",
  "font-size",
  "font-family",
  "font-weight",
  "text-anchor",
  "white-space",
];
const MIXED = /color\(srgb ([\d.e-]+) ([\d.e-]+) ([\d.e-]+)(?: \/ ([\d.e-]+))?\)/g;
const PNG_SCALE = 2;
const LONGEST_SIDE = 12000; // pixels; browsers refuse larger canvases

/**
 * Programs other than browsers do not know what color-mix() comes to.
 * @param {string} value
 */
function plainColours(value) {
  return value.replace(MIXED, (_, red, green, blue, alpha = 1) => {
    const parts = [red, green, blue].map((part) => Math.round(255 * part));
    return `rgba(${parts.join(", ")}, ${alpha})`;
  });
}

/**
 * A copy of the picture with computed colours and fonts in each element, without what is hidden.
 * @param {SVGSVGElement} svg
 * @param {PictureArea | null} area what to show where that is more than the screen shows
 */
function standalone(svg, area) {
  const tiny = area !== null && svg.classList.contains("tiny");
  if (tiny) svg.classList.remove("tiny"); // small on the screen, but the file has room for words
  const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
  copyStyles(svg, copy);
  if (tiny) svg.classList.add("tiny");
  const { width, height } = area ?? svg.getBoundingClientRect();
  copy.removeAttribute("style");
  const xmlns = "http://www.w3.org/2000/svg";
  set(copy, { xmlns, width, height, viewBox: `0 0 ${width} ${height}` });
  const stage = copy.querySelector("g");
  if (area && stage) set(stage, { transform: area.transform });
  const panel = /** @type {Element} */ (svg.parentElement);
  const fill = plainColours(getComputedStyle(panel).backgroundColor);
  const title = shape("title", {}, svg.getAttribute("aria-label"));
  copy.prepend(title, shape("rect", { width, height, fill }));
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

/**
 * @param {SVGSVGElement} svg
 * @param {SVGSVGElement} copy
 */
function copyStyles(svg, copy) {
  const originals = [...svg.querySelectorAll("*")];
  const copies = /** @type {SVGElement[]} */ ([...copy.querySelectorAll("*")]);
  copies.forEach((node, index) => {
    const computed = getComputedStyle(originals[index]);
    for (const style of STYLES) {
      node.style.setProperty(style, plainColours(computed.getPropertyValue(style)));
    }
  });
  for (const node of copies) if (node.style.display === "none") node.remove();
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
function download(blob, name) {
  const link = element("a", { download: name });
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {string} text */
function svgBlob(text) {
  return new Blob([text], { type: "image/svg+xml" });
}

/**
 * @param {SVGSVGElement} svg
 * @param {string} name
 * @param {PictureArea | null} area
 */
export function saveSvg(svg, name, area) {
  download(svgBlob(standalone(svg, area).text), `${name}.svg`);
}

/**
 * @param {SVGSVGElement} svg
 * @param {string} name
 * @param {PictureArea | null} area
 */
export function savePng(svg, name, area) {
  const { text, width, height } = standalone(svg, area);
  const scale = Math.min(PNG_SCALE, LONGEST_SIDE / Math.max(width, height));
  const size = { width: Math.ceil(width * scale), height: Math.ceil(height * scale) };
  const canvas = element("canvas", size);
  const image = new Image();
  image.onload = () => {
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    canvas.toBlob((blob) => blob && download(blob, `${name}.png`), "image/png");
  };
  image.src = URL.createObjectURL(svgBlob(text));
}
