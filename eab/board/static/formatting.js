// Numbers and texts in sentences, as eab/formatting.py writes them.

const grouped = new Intl.NumberFormat("en-US");

/** As Python rounds: of two equally close numbers, the even one. @param {number} value */
export function roundEven(value) {
  const rounded = Math.round(value);
  return Math.abs(value % 1) === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}

/** @param {number} value @param {number} digits after the point */
export function fixed(value, digits) {
  const scaled = value * 10 ** digits;
  const isTie = Math.abs(scaled % 1) === 0.5 && Number.isInteger(value * 2 ** (digits + 1));
  return (isTie ? roundEven(scaled) / 10 ** digits : value).toFixed(digits);
}

/** 0.125, 1 -> "12.5%" @param {number} share @param {number} digits */
export function percentage(share, digits) {
  return `${fixed(100 * share, digits)}%`;
}

/** 1, "path" -> "1 path"; 2000, "pass" -> "2,000 passes" @param {number} count @param {string} thing */
export function counted(count, thing) {
  const ending = /(s|ch)$/.test(thing) ? "es" : "s";
  return `${grouped.format(count)} ${thing}${count === 1 ? "" : ending}`;
}

/** 1536 -> "1.5 KiB" @param {number} count */
export function humanBytes(count) {
  let value = count;
  for (const unit of ["B", "KiB", "MiB"]) {
    if (value < 1024) return `${fixed(value, unit === "B" ? 0 : 1)} ${unit}`;
    value /= 1024;
  }
  return `${fixed(value, 1)} GiB`;
}

/** Two numbers with as many decimals as tell them apart. @param {number} a @param {number} b */
export function apart(a, b) {
  for (let digits = 2; digits < 7; digits++) {
    if (fixed(a, digits) !== fixed(b, digits)) return [fixed(a, digits), fixed(b, digits)];
  }
  return [fixed(a, 2), fixed(b, 2)];
}

/** "a", "b", "c" -> "a, b and c" @param {string[]} words */
export function listed(words) {
  return words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words.join("");
}

/** The start of a text, cut between two words. @param {string} text @param {number} longest */
export function excerpt(text, longest) {
  const all = [...text];
  if (all.length <= longest) return text;
  const space = all.slice(0, longest - 1).lastIndexOf(" ");
  const end = space >= Math.floor(longest / 2) ? space : longest - 2;
  return `${all.slice(0, end).join("").trimEnd()} …`;
}

/** The end of a longer text, cut between two words. @param {string} text @param {number} longest */
export function ending(text, longest) {
  const end = [...text].slice(-longest);
  return end.slice(end.slice(0, Math.floor(longest / 2)).indexOf(" ") + 1).join("");
}
