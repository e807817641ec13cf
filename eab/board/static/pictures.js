// A picture of the board as a file: an SVG that stands alone, or a PNG of it.

import { element, set, shape } from "./svg.js";

const STYLES = ["display", "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "paint-order", "font-size", "font-family", "font-weight", "text-anchor", "white-space"];
const MIXED = /color\(srgb ([\d.e-]+) ([\d.e-]+) ([\d.e-]+)(?: \/ ([\d.e-]+))?\)/g;
const PNG_SCALE = 2;
const LONGEST_SIDE = 12000; // pixels; browsers refuse larger canvases

// Programs other than browsers do not know what color-mix() comes to.
function plainColours(value) {
  return value.replace(MIXED, (_, red, green, blue, alpha = 1) => `rgba(${[red, green, blue].map((part) => Math.round(255 * part)).join(", ")}, ${alpha})`);
}

// The picture by itself: computed colours and fonts are written into each element, what is hidden is left out.
// area: what to show where that is more than the screen holds.
export function standingAlone(svg, area = null) {
  const tiny = area !== null && svg.classList.contains("tiny");
  if (tiny) svg.classList.remove("tiny"); // small on the screen, but the file has room for words
  const copy = svg.cloneNode(true);
  const originals = [...svg.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((node, index) => {
    const computed = getComputedStyle(originals[index]);
    for (const style of STYLES) node.style.setProperty(style, plainColours(computed.getPropertyValue(style)));
  });
  if (tiny) svg.classList.add("tiny");
  copy.querySelectorAll("*").forEach((node) => node.style.display === "none" && node.remove());
  const { width, height } = area ?? svg.getBoundingClientRect();
  copy.removeAttribute("style");
  set(copy, { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  if (area) set(copy.querySelector("g"), { transform: area.transform });
  const ground = plainColours(getComputedStyle(svg.parentElement).backgroundColor);
  copy.prepend(shape("title", {}, svg.getAttribute("aria-label")), shape("rect", { width, height, fill: ground }));
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

function save(blob, name) {
  const link = element("a", { download: name });
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function svgBlob(text) {
  return new Blob([text], { type: "image/svg+xml" });
}

export function saveSvg(svg, name, area = null) {
  save(svgBlob(standingAlone(svg, area).text), `${name}.svg`);
}

export function savePng(svg, name, area = null) {
  const { text, width, height } = standingAlone(svg, area);
  const scale = Math.min(PNG_SCALE, LONGEST_SIDE / Math.max(width, height));
  const canvas = element("canvas", { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
  const image = new Image();
  image.onload = () => {
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    canvas.toBlob((blob) => save(blob, `${name}.png`), "image/png");
  };
  image.src = URL.createObjectURL(svgBlob(text));
}
