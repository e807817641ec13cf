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

export function diamond(x, y, size) {
  return `M${x.toFixed(1)} ${y - size}l${size} ${size}l${-size} ${size}l${-size} ${-size}Z`;
}

export function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    const wanted = String(value);
    if (node.getAttribute(key) !== wanted) node.setAttribute(key, wanted);
  }
}

const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();

export function textFont(family) {
  if (pen.family === family) return;
  pen.family = family;
  pen.font = `13px ${family}`;
  widths.clear();
}

// Width in pixels at 13 px: a canvas measures without laying the page out, and each character once.
export function textWidth(text) {
  let sum = 0;
  for (const character of text) {
    let width = widths.get(character);
    if (width === undefined) widths.set(character, (width = pen.measureText(character).width));
    sum += width;
  }
  return sum;
}

// The text, or as much of its beginning as fits.
export function clip(text, room) {
  const characters = [...text];
  if (textWidth(text) <= room) return text;
  while (characters.length && textWidth(characters.join("") + "…") > room) characters.pop();
  return characters.length ? characters.join("") + "…" : "";
}

// The tokens' text with its middle left out where it is too long, and the [left, right] of each token in it; the
// tokens left out share the place of the ellipsis.
export function fold(pieces, longest) {
  const characters = pieces.map((piece) => [...piece]);
  const all = characters.flat();
  const cut = all.length <= longest ? all.length : Math.floor((longest * 3) / 5);
  const tail = all.length <= longest ? all.length : all.length - (longest - cut - 3);
  const gap = cut < tail ? " … " : "";
  const at = [0]; // left edge of each character
  all.forEach((character, index) => {
    const hidden = index >= cut && index < tail;
    at.push(at[index] + (hidden ? textWidth(gap) / (tail - cut) : textWidth(character)));
  });
  let from = 0;
  const cells = characters.map((piece) => [at[from], at[(from += piece.length)]]);
  return { text: all.slice(0, cut).join("") + gap + all.slice(tail).join(""), width: at[all.length], cells };
}

export function bytes(count) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (count < 1024) return (unit === "B" || count >= 100 ? count.toFixed(0) : String(+count.toFixed(1))) + " " + unit;
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
  if (!Number.isFinite(highest) || highest <= 0) return [0];
  const rough = highest / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) || 10 * power;
  const count = Math.min(50, Math.floor((highest / step) * 1.0001));
  return Array.from({ length: count + 1 }, (_, index) => +(index * step).toPrecision(6));
}
