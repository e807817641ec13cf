// What is shown beside the pointer.

import { element } from "./elements.js";

const GAP = 14; // px between the pointer and the words

export class Tooltip {
  /** @param {HTMLElement} frame what it stays inside of */
  constructor(frame) {
    this.frame = frame;
    this.root = element("div", { class: "tooltip", hidden: "", "aria-hidden": "true" });
  }

  hide() {
    this.root.hidden = true;
  }

  /**
   * @param {MouseEvent} event
   * @param {Element[]} content
   */
  show(event, content) {
    this.root.hidden = false;
    this.root.replaceChildren(...content);
    const frame = this.frame.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.root;
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const left = Math.max(4, Math.min(x + GAP, frame.width - offsetWidth - 4));
    const fitsBelow = event.clientY + GAP + offsetHeight < innerHeight;
    const top = fitsBelow ? y + GAP : y - GAP - offsetHeight;
    this.root.style.transform = `translate(${left.toFixed(0)}px, ${top.toFixed(0)}px)`;
  }
}
