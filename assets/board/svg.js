// Small helpers: elements are made, never parsed from text, so model output stays text.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

export function shape(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

export function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    const wanted = String(value);
    if (node.getAttribute(key) !== wanted) node.setAttribute(key, wanted);
  }
}

export function shorten(text, longest) {
  const characters = [...text];
  if (characters.length <= longest) return text;
  const head = Math.floor((longest * 3) / 5);
  return characters.slice(0, head).join("") + " … " + characters.slice(characters.length - (longest - head - 3)).join("");
}

export function bytes(count) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (count < 1024) return (unit === "B" || count >= 100 ? count.toFixed(0) : count.toFixed(1)) + " " + unit;
    count /= 1024;
  }
  return count.toFixed(1) + " GiB";
}

export function percent(share) {
  if (share >= 0.0995) return (100 * share).toFixed(0) + "%";
  return share >= 0.00095 ? (100 * share).toFixed(1) + "%" : "<0.1%";
}

// Class of an entropy beside the threshold: e0 calm ... e3 at or above it, e4 twice above.
export function heat(entropy, threshold) {
  const ratio = entropy / Math.max(threshold, 1e-9);
  return ratio >= 2 ? "e4" : ratio >= 1 ? "e3" : ratio >= 0.5 ? "e2" : ratio >= 0.2 ? "e1" : "e0";
}

export function ticks(highest, wanted = 4) {
  const rough = highest / wanted;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) || 1;
  const found = [];
  for (let value = 0; value <= highest * 1.0001; value += step) found.push(+value.toPrecision(6));
  return found;
}

// The picture as a file of its own: computed colours and fonts are written into each element.
export function downloadSvg(svg, name) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  const styles = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];
  [copy, ...copy.querySelectorAll("*")].forEach((node, index) => {
    const computed = getComputedStyle(originals[index]);
    for (const style of styles) node.style.setProperty(style, computed.getPropertyValue(style));
  });
  const box = svg.getBoundingClientRect();
  set(copy, { xmlns: SVG, width: box.width, height: box.height });
  copy.style.background = getComputedStyle(svg.closest(".eab")).getPropertyValue("--eab-panel");
  const link = element("a", { download: name });
  link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
