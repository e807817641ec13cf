"""The tree of a run as a still SVG, for places that run no scripts, such as a repository preview or
a printout.
"""

import base64
from html import escape
from typing import Final
from xml.etree import ElementTree as Xml

from eab import token_text
from eab.board.layout import (
    BOX_HEIGHT,
    LONGEST,
    PROMPT_LONGEST,
    STUB_HEIGHT,
    Layout,
    pieces,
    shorten,
    tidy,
)
from eab.figures.captions import tree_sentence
from eab.run import Path, RunState

MARGIN: Final = 14.0
MARKS: Final = 60.0  # room for the mark to the right of a box
TITLE: Final = 24.0

_INK, _SOFT, _LINE, _FORK, _ENDED = "#1f1f1f", "#6a6a6a", "#c9c9c9", "#8a2e7a", "#00664b"
_MARKS: Final = {
    "forked": ("◆", _FORK),
    "finished": ("■", _ENDED),
    "pruned": ("×", _SOFT),
    "live": ("●", _ENDED),
}


def tree_svg(run: RunState) -> str:
    """All paths as boxes, left to right, on white; heavier paths have wider edges."""
    layout = tidy(run)
    width, height = layout.width + 2 * MARGIN + MARKS, layout.height + 2 * MARGIN + TITLE
    frame = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {width:.0f} {height:.0f}",
        "width": f"{width:.0f}",
    }
    font = {"font-family": "system-ui, sans-serif", "font-size": "13"}
    svg = Xml.Element("svg", frame | font | {"role": "img"})
    Xml.SubElement(svg, "title").text = tree_sentence(run)
    Xml.SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    _text(svg, MARGIN, MARGIN + 8, tree_sentence(run), _SOFT)
    stage = Xml.SubElement(svg, "g", {"transform": f"translate({MARGIN:.0f} {MARGIN + TITLE:.0f})"})
    _prompt(stage, run, layout)
    for path in run.paths:
        _edge(stage, path, layout)
    for path in run.paths:
        _box(stage, path, layout)
    return Xml.tostring(svg, encoding="unicode")


def _prompt(stage: Xml.Element, run: RunState, layout: Layout) -> None:
    prompt = shorten(token_text.visible(run.started.beginning), PROMPT_LONGEST)
    middle = layout.y[0] if layout.y else layout.height / 2
    _frame(stage, 0, middle, layout.prompt_width, BOX_HEIGHT, {"fill": "#e0eef6"})
    _text(stage, 10, middle + 4.5, prompt)


def _edge(stage: Xml.Element, path: Path, layout: Layout) -> None:
    root = path.parent < 0
    left = layout.prompt_width if root else layout.x[path.parent] + layout.box_widths[path.parent]
    start = layout.y[path.id] if root else layout.y[path.parent]
    right, end = layout.x[path.id], layout.y[path.id]
    middle = (left + right) / 2
    curve = (
        f"M{left:.1f} {start:.1f}"
        f"C{middle:.1f} {start:.1f} {middle:.1f} {end:.1f} {right:.1f} {end:.1f}"
    )
    width = f"{1 + 6 * min(1.0, path.weight) ** 0.5:.2f}"
    style = {"fill": "none", "stroke": _LINE, "stroke-width": width}
    Xml.SubElement(stage, "path", {"d": curve, **style})


def _box(stage: Xml.Element, path: Path, layout: Layout) -> None:
    x, y, width = layout.x[path.id], layout.y[path.id], layout.box_widths[path.id]
    pruned = path.status == "pruned"
    dashes = {"stroke-dasharray": "4 3"} if pruned else {}
    _frame(stage, x, y, width, STUB_HEIGHT if pruned else BOX_HEIGHT, {"fill": "#ffffff", **dashes})
    _text(stage, x + 11, y + 4, shorten("".join(pieces(path)), LONGEST), _SOFT if pruned else _INK)
    is_cut = path.finish_reason == "length" and not pruned
    sign, colour = ("→", _ENDED) if is_cut else _MARKS[path.status]
    _text(stage, x + width + 4, y + 4.5, sign, colour)
    if path.parent >= 0 and not pruned:
        style = {"text-anchor": "end", "font-size": "11"}
        _text(stage, x - 6, y - 5, f"{path.share:.0%}", _SOFT, style)


def _frame(
    stage: Xml.Element, x: float, middle: float, width: float, height: float, style: dict[str, str]
) -> None:
    place = {"x": f"{x:.1f}", "y": f"{middle - height / 2:.1f}"}
    place |= {"width": f"{width:.1f}", "height": f"{height:.0f}"}
    Xml.SubElement(stage, "rect", {**place, "rx": "6", "stroke": _LINE, **style})


def _text(
    stage: Xml.Element,
    x: float,
    y: float,
    words: str,
    colour: str = _INK,
    style: dict[str, str] | None = None,
) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "fill": colour, "xml:space": "preserve"}
    Xml.SubElement(stage, "text", {**place, **(style or {})}).text = words


def picture(svg: str, words: str) -> str:
    """An SVG as an HTML image, which is shown even in a notebook that is not trusted."""
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(words)}">'
