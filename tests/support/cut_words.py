"""Words on a page that cannot be read whole: clipped by a box around them, or ended by an ellipsis
of the style sheet; and boxes of the board without words.
"""

from playwright.sync_api import Page

# A text is cut if part of it lies outside of a box that hides what does not fit, unless the box, or
# one in between, can be scrolled. Words for screen readers alone, and hidden ones, are not looked at.
_CUT = """() => {
  const found = [];
  const up = (node) => node.assignedSlot ?? node.parentElement ?? node.getRootNode().host;
  const hides = (style, axis) => ["hidden", "clip"].includes(style[`overflow${axis}`]);
  const scrolls = (style, axis) => ["auto", "scroll"].includes(style[`overflow${axis}`]);
  const cutBy = (owner, rect) => {
    const open = { X: true, Y: true };
    for (let node = owner; node; node = up(node)) {
      const style = getComputedStyle(node);
      const box = node.getBoundingClientRect();
      if (box.width <= 1 || box.height <= 1) return "";  // for screen readers
      for (const [axis, from, to] of [["X", "left", "right"], ["Y", "top", "bottom"]]) {
        if (scrolls(style, axis)) open[axis] = false;
        const isOut = rect[from] < box[from] - 2 || rect[to] > box[to] + 2;
        if (open[axis] && hides(style, axis) && isOut) return `${node.tagName}.${node.className}`;
      }
      if (style.position === "fixed") return "";
    }
    return "";
  };
  const look = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode;
      const owner = text.parentElement ?? root.host;
      if (!text.data.trim() || owner.closest("script, style, title, defs, .katex, option")) continue;
      if (!owner.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      const range = document.createRange();
      range.selectNodeContents(text);
      const rect = range.getBoundingClientRect();
      if (rect.width <= 1 || rect.height <= 1) continue;
      const by = cutBy(owner, rect);
      if (by) found.push(`“${text.data.trim().slice(0, 60)}” in ${by}`);
    }
    for (const node of root.querySelectorAll("*")) if (node.shadowRoot) look(node.shadowRoot);
  };
  look(document.body);
  return found;
}"""
_EMPTY_BOXES = """() => [...document.querySelectorAll("*")]
  .flatMap((node) => node.shadowRoot ? [...node.shadowRoot.querySelectorAll(
    ".box.path:not(.outside) .label, .outline-item.path")] : [])
  .filter((box) => box.checkVisibility({ opacityProperty: true, visibilityProperty: true }))
  .filter((box) => box.getBoundingClientRect().width > 0 && !box.textContent.trim()).length"""


def cut_words(page: Page) -> list[str]:
    """Each text that is cut, with what cuts it."""
    return list(page.evaluate(_CUT))


def empty_boxes(page: Page) -> int:
    """How many boxes of the board have no words."""
    return int(page.evaluate(_EMPTY_BOXES))
