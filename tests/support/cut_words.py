"""Words on a page that cannot be read in full, because an enclosing box clips them or the style
sheet ends them in an ellipsis; and boxes of the board without words.
"""

from playwright.sync_api import Page

# A text is cut if part of it lies outside a box that hides its overflow, unless that box, or a box
# in between, can be scrolled. Hidden words, and words only for screen readers, are ignored.
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
      // What is out of sight may not be laid out yet (content-visibility).
      const all = { opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true };
      if (!owner.checkVisibility(all)) continue;
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
    """Each text that is cut, with the element that cuts it."""
    return list(page.evaluate(_CUT))


def empty_boxes(page: Page) -> int:
    """The number of boxes on the board that have no words."""
    return int(page.evaluate(_EMPTY_BOXES))
