// The most likely tokens at a place, each with a bar for its probability.

/** @import { Token } from "./types.d.ts" */
import { element } from "./elements.js";
import { percent } from "./format.js";

/**
 * @param {Token} token @param {number} most
 * @param {(text: string, index: number) => Element} [nameOf] makes a candidate's text
 */
export function candidateBars(token, most, nameOf = plainName) {
  return token.candidates.slice(0, most).map(({ text, probability }, index) => {
    const item = element("li", { class: index === token.taken ? "taken" : "" });
    const bar = element("span", { class: "bar" });
    bar.style.width = `${Math.max(1, probability * 100).toFixed(1)}%`;
    const track = element("span", { class: "track" }, bar);
    const number = element("span", { class: "number" }, percent(probability));
    item.append(nameOf(text, index), track, number);
    return item;
  });
}

/** @param {string} text */
function plainName(text) {
  return element("span", { class: "mono candidate" }, text);
}
