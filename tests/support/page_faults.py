"""What a person cannot use or read on a page: controls that a pointer cannot reach (outside the
window, over another one, or covered), words that an enclosing box clips or the style sheet ends in
an ellipsis, and boxes of the board without words.
"""

from typing import Any

from playwright.sync_api import Page

# All elements below a node, and an element with all around it, shadow roots included.
WALK = """
const everything = (root) => [...root.querySelectorAll("*")].flatMap(
  (node) => node.shadowRoot ? [node, ...everything(node.shadowRoot)] : [node]);
const up = (node) => node.assignedSlot ?? node.parentElement ?? node.getRootNode().host;
const chain = (node) => node ? [node, ...chain(up(node))] : [];
"""
# Exceptions: the open drawer of a token lies over the charts beside the tree until it is closed, and
# Streamlit's arrow lies over the last tab of a row that scrolls. A closed sidebar is not looked at.
_UNREACHABLE = """(area) => { WALK
  const CONTROLS = `button, a[href], input, textarea, select, summary,
    :is([role=button], [role=tab], [role=switch], [role=combobox], [role=option], [role=menuitem])`;
  const size = ({ left, right, top, bottom }) => Math.min(right - left, bottom - top);
  // Streamlit hides the input of a slider, a switch or a radio button in the part that is seen.
  const seen = (node) => node.matches("[type=radio], [type=checkbox], [type=range]")
    ? node.closest("label") ?? chain(node).find((one) => size(shown(one)) > 4 ||
        one.matches?.(".stElementContainer")) : node;
  const shown = (node) => {  // the part of its box that no box around it cuts off
    const { left, right, top, bottom } = node.getClientRects()[0] ??
      node.getBoundingClientRect();  // of a link's first line
    const part = { left, right, top, bottom };
    let { position } = getComputedStyle(node);
    for (const around of chain(up(node))) {
      if (position === "fixed" || around === document.body) break;
      const style = getComputedStyle(around), box = around.getBoundingClientRect();
      if (position === "absolute" && style.position === "static") continue;
      ({ position } = style);
      const hidden = Number(/^inset\\(\\S+ ([\\d.]+)px/.exec(style.clipPath)?.[1] ?? 0);
      part.right = Math.min(part.right, hidden ? box.right - hidden : Infinity);
      for (const [axis, from, to] of [["X", "left", "right"], ["Y", "top", "bottom"]]) {
        if (style[`overflow${axis}`] === "visible") continue;
        part[from] = Math.max(part[from], box[from]);
        part[to] = Math.min(part[to], box[to]);
      }
    }
    return part;
  };
  const name = (node) => {
    const words = node.ariaLabel || node.textContent || node.querySelector?.("input")?.ariaLabel;
    return `${node.tagName} “${(words ?? "").trim().slice(0, 40)}” ${node.className}`.trim();
  };
  const excused = (one, other) => {
    const [a, b] = [chain(one), chain(other)];
    const is = (nodes, rule) => nodes.some((node) => node.matches?.(rule));
    return a.includes(other) || b.includes(one) || is([...a, ...b], "[aria-label^='Scroll tabs']") ||
      [[a, b], [b, a]].some(([over, below]) => is(over, ".drawer") &&
        is(below, ".panel:not(.tree-panel, .drawer)"));
  };
  const at = (x, y, root = document) => {
    const hit = root.elementFromPoint(x, y);
    return hit?.shadowRoot && hit.shadowRoot !== root ? at(x, y, hit.shadowRoot) : hit;
  };
  const isOpen = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
    size(node.getBoundingClientRect()) > 1 && !node.closest(".stSidebar[data-collapsed=true]");
  const nodes = [...new Set(everything(document.querySelector(area)).filter((node) => node.matches(CONTROLS))
    .filter(isOpen).map(seen))];
  for (const node of everything(document.body)) node.scrollTo({ top: 0, left: 0, behavior: "instant" });
  const faults = [], wide = document.documentElement.clientWidth;
  const boxes = nodes.map((node) => [node, shown(node)]).filter(([, box]) => size(box) > 1);
  boxes.forEach(([one, a], index) => {
    if (a.left < -1 || a.right > wide + 1) faults.push(`outside: ${name(one)}`);
    for (const [other, b] of boxes.slice(index + 1)) {
      const [left, top] = [Math.max(a.left, b.left), Math.max(a.top, b.top)];
      const common = { left, top, right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom) };
      if (size(common) > 1 && !excused(one, other)) faults.push(`${name(one)} over ${name(other)}`);
    }
  });
  for (const node of nodes) {
    node.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
    const box = shown(node);
    const hit = at((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    if (size(box) <= 1) faults.push(`cut off: ${name(node)}`);
    else if (!chain(hit).includes(node) && !(hit && excused(hit, node)))
      faults.push(`covered: ${name(node)} by ${hit ? name(hit) : "nothing"}`);
  }
  for (const node of everything(document.body)) node.scrollTo({ top: 0, left: 0, behavior: "instant" });
  return [nodes.length, faults];
}"""
# A text is cut if part of it lies outside a box that hides its overflow, unless that box, or a box
# in between, can be scrolled. Hidden words, and words only for screen readers, are ignored.
_CUT = """() => { WALK
  const found = [];
  const hides = (style, axis) => ["hidden", "clip"].includes(style[`overflow${axis}`]);
  const scrolls = (style, axis) => ["auto", "scroll"].includes(style[`overflow${axis}`]);
  const cutBy = (owner, rect) => {
    const open = { X: true, Y: true };
    for (const node of chain(owner)) {
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
  const texts = [document.body, ...everything(document.body)]
    .flatMap((node) => [...node.childNodes, ...(node.shadowRoot?.childNodes ?? [])])
    .filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  for (const text of texts) {
    const owner = text.parentElement ?? text.getRootNode().host;
    if (owner.closest("script, style, title, defs, .katex, option")) continue;
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
  return found;
}"""
_EMPTY_BOXES = """() => { WALK
  return everything(document.body)
    .filter((node) => node.matches(".box.path:not(.outside) .label, .outline-item.path"))
    .filter((box) => box.checkVisibility({ opacityProperty: true, visibilityProperty: true }))
    .filter((box) => box.getBoundingClientRect().width > 0 && !box.textContent.trim()).length;
}"""


def walked(page: Page, code: str, argument: Any = None) -> Any:
    """The value of JavaScript in which WALK stands for these functions."""
    return page.evaluate(code.replace("WALK", WALK, 1), argument)


def unreachable(page: Page, area: str = "body") -> list[str]:
    """Each visible control in this part of the page that a pointer cannot use, and why."""
    count, faults = walked(page, _UNREACHABLE, area)
    assert count, "the page has no controls"
    return list(faults)


def cut_words(page: Page) -> list[str]:
    """Each text that is cut, with the element that cuts it."""
    return list(walked(page, _CUT))


def empty_boxes(page: Page) -> int:
    """The number of boxes on the board that have no words."""
    return int(walked(page, _EMPTY_BOXES))
