// How large the pictures are. Sizes are noted when they change: to ask for them while drawing would
// make the browser lay out the page each time.

/** @import { Size } from "./types.d.ts" */

export class Sizes {
  /** @param {() => void} redraw */
  constructor(redraw) {
    /** @type {Map<Element, Size>} */
    this.known = new Map();
    this.observer = new ResizeObserver((entries) => {
      const stale = entries.filter(({ target, contentRect: { width, height } }) => {
        const before = this.of(target);
        if (width) this.known.set(target, { width, height });
        return width !== before.width || height !== before.height;
      });
      if (stale.length) redraw();
    });
  }

  /** @param {Element} element */
  observe(element) {
    this.observer.observe(element);
  }

  close() {
    this.observer.disconnect();
  }

  /** @param {Element} element @returns {Size} */
  of(element) {
    const known = this.known.get(element);
    if (known) return known;
    const size = { width: element.clientWidth || 600, height: element.clientHeight || 220 };
    this.known.set(element, size);
    return size;
  }
}
