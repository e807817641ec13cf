// The sizes of the pictures. They are stored when they change, because reading them while drawing
// would make the browser lay out the page each time.

/** @import { Size } from "./types.d.ts" */

export class Sizes {
  /** @param {(changed: Element[]) => void} redraw */
  constructor(redraw) {
    /** @type {Map<Element, Size>} */
    this.known = new Map();
    this.observer = new ResizeObserver((entries) => {
      const stale = entries.filter(({ target, contentRect: { width, height } }) => {
        const before = this.known.get(target);
        if (width) this.known.set(target, { width, height });
        return width !== before?.width || height !== before?.height;
      });
      if (stale.length) redraw(stale.map(({ target }) => target));
    });
  }

  /** @param {Element} element */
  observe(element) {
    this.observer.observe(element);
  }

  close() {
    this.observer.disconnect();
  }

  /** @param {Element} element @returns {Size} a typical one if it is not laid out yet */
  of(element) {
    return this.ofLaidOut(element) ?? { width: 600, height: 220 };
  }

  /** @param {Element} element @returns {Size | undefined} */
  ofLaidOut(element) {
    const known = this.known.get(element);
    if (known) return known;
    const { clientWidth: width, clientHeight: height } = element;
    if (width) this.known.set(element, { width, height });
    return this.known.get(element);
  }
}
