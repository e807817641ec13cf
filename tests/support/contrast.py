"""Contrast of words and marks, as WCAG 2.2 defines it, from the colours that the browser draws."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from page_faults import WALK
from playwright.sync_api import Page

LARGE: Final = 24  # px; words of this size or larger need 3:1 instead of 4.5:1
# Words that WCAG exempts (disabled controls), and labels on top of the marks of a chart.
EXEMPT: Final = (
    ":disabled, [aria-disabled=true], .slicetext, .annotation, .js-plotly-plot:has(.hm) .textpoint"
)
# Left out: heat maps, whose background is not the page; patterns, which have two colours; and paths
# that are dimmed while another one is selected.
MARKS: Final = (
    ".js-plotly-plot:not(:has(.hm)) :is(.js-line, path.point, .points path, .legendlines path)"
    ":not(.pattern_filled), .eab .tick:not(.highlighting .path:not(.related) *), .eab path.fork"
)

# Colours are [red, green, blue, alpha] from 0 to 255, in whatever form CSS has them. The ground is
# the background of an element, with translucent layers blended.
_BROWSER: Final = (
    WALK
    + """
const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (css) => {
  pen.clearRect(0, 0, 1, 1); pen.fillStyle = css; pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data];
};
const over = (top, below) => {
  const share = top[3] / 255;
  return [0, 1, 2].map((i) => top[i] * share + below[i] * (1 - share)).concat(255);
};
const middle = (box) => [box.left + box.width / 2, box.top + box.height / 2];
const lies = ([x, y], box) => x >= box.left && x <= box.right && y >= box.top && y <= box.bottom;
const isBehind = (one, node) => one === document.body || one === document.documentElement ||
  lies(middle(node.getBoundingClientRect()), one.getBoundingClientRect());
const ground = (node) => chain(node).reverse().filter((one) => isBehind(one, node)).reduce(
  (below, one) => over(rgba(getComputedStyle(one).backgroundColor), below), [255, 255, 255, 255]);
const drawn = (node, css) => {
  const colour = rgba(css), behind = ground(node);
  colour[3] *= chain(node).reduce((share, one) => share * getComputedStyle(one).opacity, 1);
  return { colour: over(colour, behind), ground: behind };
};
"""
)
_WORDS: Final = f"""(exempt) => {{ {_BROWSER}
  return everything(document.body).filter((node) =>
    [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim()) &&
    !node.closest('script, style, noscript') && !node.closest(exempt) &&
    node.checkVisibility({{ opacityProperty: true, visibilityProperty: true }}) &&
    node.getBoundingClientRect().width > 1
  ).map((node) => {{
    const style = getComputedStyle(node);
    return {{ name: node.textContent.trim().slice(0, 60), size: parseFloat(style.fontSize),
      ...drawn(node, node instanceof SVGElement ? style.fill : style.color) }};
  }});
}}"""
_MARKS: Final = f"""(marks) => {{ {_BROWSER}
  // The edge of a band has no width: only its area is drawn.
  const isDrawn = (node) => !node.matches('.js-line') || parseFloat(getComputedStyle(node).strokeWidth) > 0;
  return everything(document.body).filter((node) => node.matches(marks) && isDrawn(node)).map((node) => {{
    const {{ fill, stroke }} = getComputedStyle(node);
    return {{ name: node.getAttribute('class') ?? '', size: 0,
      ...drawn(node, fill === 'none' || fill.startsWith('url') ? stroke : fill) }};
  }});
}}"""


class Drawn(NamedTuple):
    """Words or a mark on a page.

    Attributes:
        name: The words, or the class of the mark.
        ratio: Its contrast against its background.
        size: The font size in px; 0 for a mark.
    """

    name: str
    ratio: float
    size: float


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """The contrast ratio, 1 to 21, of two colours (red, green and blue from 0 to 255)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def words(page: Page) -> list[Drawn]:
    """All visible words on the page, shadow roots included, except exempt ones."""
    return [_drawn(one) for one in page.evaluate(_WORDS, EXEMPT)]


def marks(page: Page) -> list[Drawn]:
    """The lines and points of the page's charts and boards."""
    return [_drawn(one) for one in page.evaluate(_MARKS, MARKS)]


def faint(found: Sequence[Drawn]) -> list[Drawn]:
    """The words and marks with less contrast than WCAG requires, the faintest first."""
    return sorted({one for one in found if one.ratio < _least(one)}, key=lambda one: one.ratio)


def _least(one: Drawn) -> float:
    return 4.5 if 0 < one.size < LARGE else 3.0


def _drawn(found: dict[str, list[float]]) -> Drawn:
    ratio = contrast(found["colour"], found["ground"])
    return Drawn(str(found["name"]), round(ratio, 2), float(str(found["size"])))


def _luminance(colour: Sequence[float]) -> float:
    parts = [part / 255 for part in colour[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
