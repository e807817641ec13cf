// Words beside the pointer.

import { element } from "./elements.js";

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
   * @param {string} words
   */
  show(event, words) {
    this.root.hidden = false;
    this.root.textContent = words;
    const frame = this.frame.getBoundingClientRect();
    const rightmost = frame.width - this.root.offsetWidth - 4;
    const left = Math.min(event.clientX - frame.left + 12, rightmost);
    const top = event.clientY - frame.top + 18;
    this.root.style.transform = `translate(${left.toFixed(0)}px, ${top.toFixed(0)}px)`;
  }
}
