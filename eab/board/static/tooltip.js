// The tooltip of a token: what the model considered there, and why the path forked or not.

/** @import { RunStore } from "./run_store.js" */
/** @import { Path } from "./types.d.ts" */
import { candidateBars } from "./candidates.js";
import { element } from "./elements.js";
import { forkWords } from "./fork_reasons.js";
import { percent } from "./format.js";

const GAP = 14; // px between the pointer and the words
const MOST = 5; // candidates

export class Tooltip {
  constructor() {
    this.root = element("div", { class: "tooltip", hidden: "", "aria-hidden": "true" });
  }

  hide() {
    this.root.hidden = true;
  }

  /** @param {MouseEvent} event @param {Element[]} content */
  show(event, content) {
    this.root.hidden = false;
    this.root.replaceChildren(...content);
    const frame = /** @type {Element} */ (this.root.parentElement).getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.root;
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const left = Math.max(4, Math.min(x + GAP, frame.width - offsetWidth - 4));
    const fitsBelow = event.clientY + GAP + offsetHeight < innerHeight;
    const top = fitsBelow ? y + GAP : y - GAP - offsetHeight;
    this.root.style.transform = `translate(${left.toFixed(0)}px, ${top.toFixed(0)}px)`;
  }
}

/** @param {RunStore} store @param {Path} path @param {number} index */
export function tokenTip(store, path, index) {
  const token = path.tokens[index];
  const head = `“${token.text}”  p ${percent(token.probability)}  entropy ${token.entropy.toFixed(2)} nats`;
  const list = element("ol", { class: "candidates" }, ...candidateBars(token, MOST));
  const reason = store.unknownAt(path.id, index) || forkWords(store, path, index);
  return [element("p", { class: "tip-head" }, head), list, element("p", {}, reason)];
}
