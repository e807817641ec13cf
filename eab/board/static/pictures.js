// Saves a picture of the board as a file: a standalone SVG, or a PNG of it.

/** @import { PictureFrame } from "./types.d.ts" */
import { element, FONT_SIZE, set, shape, textWidth } from "./elements.js";

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
const TITLE_HEIGHT = 26;
const LINE_HEIGHT = 18;
const SMALL = 11.5; // px
const MARGIN = 12;
const NARROWEST = 420; // px; the legend needs some room
const LONGEST_SIDE = 12000; // pixels; browsers refuse larger canvases

/** Replace color-mix(), which only browsers can evaluate. @param {string} value */
function plainColours(value) {
  return value.replace(MIXED, (_, red, green, blue, alpha = 1) => {
    const parts = [red, green, blue].map((part) => Math.round(255 * part));
    return `rgba(${parts.join(", ")}, ${alpha})`;
  });
}

/**
 * A copy of the picture with computed colours and fonts in each element, without hidden elements,
 * and with a title above and a legend below.
 * @param {SVGSVGElement} svg @param {PictureFrame} frame
 */
function standalone(svg, frame) {
  const { area } = frame;
  const tiny = area !== null && svg.classList.contains("tiny");
  if (tiny) svg.classList.remove("tiny"); // the file has room for words
  const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
  keepTextWidths(svg, copy);
  copyStyles(svg, copy);
  if (tiny) svg.classList.add("tiny");
  const size = area ?? svg.getBoundingClientRect();
  const stage = copy.querySelector("g");
  if (area && stage) set(stage, { transform: area.transform });
  const panel = /** @type {Element} */ (svg.closest(".panel"));
  const { color, backgroundColor, fontFamily } = getComputedStyle(panel);
  const width = Math.max(size.width, NARROWEST);
  const legend = legendOf(frame.key, width);
  const sentence = linesOf(frame.sentence, width - 2 * MARGIN);
  const top = TITLE_HEIGHT + sentence.length * LINE_HEIGHT;
  const about = linesOf(frame.about, width - 2 * MARGIN);
  const end = top + size.height + legend.height;
  const height = end + about.length * LINE_HEIGHT;
  copy.removeAttribute("style");
  set(copy, { x: 0, y: top, width: size.width, height: size.height });
  const xmlns = "http://www.w3.org/2000/svg";
  const font = { "font-family": fontFamily, fill: plainColours(color) };
  const file = shape("svg", { xmlns, width, height, viewBox: `0 0 ${width} ${height}`, ...font });
  const place = { transform: `translate(0 ${top + size.height})` };
  const below = shape("g", place, ...legend.parts);
  file.append(
    shape("title", {}, `${frame.title}. ${frame.sentence}`),
    shape("rect", { width, height, fill: plainColours(backgroundColor) }),
    shape("text", { x: MARGIN, y: 18, "font-size": 14, "font-weight": 600 }, frame.title),
    ...sentence.map((line, index) =>
      shape("text", { x: MARGIN, y: 35 + index * LINE_HEIGHT, "font-size": FONT_SIZE }, line),
    ),
    copy,
    below,
    ...about.map((line, index) =>
      shape("text", { x: MARGIN, y: end + 9 + index * LINE_HEIGHT, "font-size": SMALL }, line),
    ),
  );
  return { text: new XMLSerializer().serializeToString(file), width, height };
}

/**
 * A sentence, broken into lines of whole words.
 * @param {string} sentence @param {number} width
 */
function linesOf(sentence, width) {
  /** @type {string[]} */
  const lines = [];
  for (const word of sentence.split(" ")) {
    const longer = `${lines[lines.length - 1]} ${word}`;
    if (lines.length && textWidth(longer) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/**
 * Fix the width of each text to fit its box, because another program may use another font.
 * @param {SVGSVGElement} svg @param {SVGSVGElement} copy
 */
function keepTextWidths(svg, copy) {
  const copies = copy.querySelectorAll("text.label");
  svg.querySelectorAll("text.label").forEach((node, index) => {
    const length = /** @type {SVGTextElement} */ (node).getComputedTextLength();
    if (length > 0) {
      set(copies[index], { textLength: length.toFixed(1), lengthAdjust: "spacingAndGlyphs" });
    }
  });
}

/**
 * The legend entries that are on the screen, arranged in lines.
 * @param {HTMLElement} key @param {number} width
 */
function legendOf(key, width) {
  const parts = [];
  let [x, line] = [MARGIN, 0];
  for (const entry of /** @type {NodeListOf<HTMLElement>} */ (key.querySelectorAll(".key-entry"))) {
    if (!entry.offsetParent) continue; // not in this picture
    const words = entry.textContent ?? "";
    const needed = textWidth(words) + 34;
    if (x > MARGIN && x + needed > width) [x, line] = [MARGIN, line + 1];
    const y = 14 + line * LINE_HEIGHT;
    const swatch = entry.querySelector(".swatch");
    if (swatch) {
      parts.push(legendSwatch(swatch, x, y - 9));
    }
    parts.push(shape("text", { x: x + (swatch ? 15 : 0), y, "font-size": FONT_SIZE - 1 }, words));
    x += needed;
  }
  return { parts, height: (line + 1) * LINE_HEIGHT + 8 };
}

/**
 * @param {Element} swatch on the screen
 * @param {number} x @param {number} y
 */
function legendSwatch(swatch, x, y) {
  const { backgroundColor, borderTopColor, borderTopStyle, borderRadius } =
    getComputedStyle(swatch);
  const look = {
    fill: plainColours(backgroundColor),
    stroke: borderTopStyle === "none" ? "none" : plainColours(borderTopColor),
    "stroke-dasharray": { dashed: "3 2", dotted: "1.5 1.5" }[borderTopStyle] ?? "none",
  };
  if (borderRadius === "50%") return shape("circle", { cx: x + 5, cy: y + 5, r: 4, ...look });
  return shape("rect", { x, y, width: 10, height: 10, ...look });
}

/** @param {SVGSVGElement} svg @param {SVGSVGElement} copy */
function copyStyles(svg, copy) {
  const originals = [...svg.querySelectorAll("*")];
  const copies = /** @type {SVGElement[]} */ ([...copy.querySelectorAll("*")]);
  copies.forEach((node, index) => {
    const computed = getComputedStyle(originals[index]);
    for (const style of STYLES) {
      node.style.setProperty(style, plainColours(computed.getPropertyValue(style)));
    }
  });
  for (const node of copies)
    if (node.style.display === "none" || node.matches(".fading")) node.remove();
}

/** @param {Blob} blob @param {string} name */
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

/** @param {SVGSVGElement} svg @param {string} name @param {PictureFrame} frame */
export function saveSvg(svg, name, frame) {
  download(svgBlob(standalone(svg, frame).text), `${name}.svg`);
}

/** @param {SVGSVGElement} svg @param {string} name @param {PictureFrame} frame */
export function savePng(svg, name, frame) {
  const { text, width, height } = standalone(svg, frame);
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
