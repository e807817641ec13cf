"""The tree of a run as a still SVG, for places that run no scripts, such as a repository preview or
a printout.

Boxes lie left to right, one row per leaf, parents in the middle. Units are CSS pixels at scale 1. A
box starts where its parent ends, plus a gap, and each subtree has rows of its own, so boxes never
overlap. Pruned leaves are stubs in lower rows. This layout is for still pictures;
`eab/board/static/layout.js` does the same in the browser, where widths are measured and the tree is
fitted into its panel.

A thumbnail has no text, to tell runs apart at a glance.
"""

import base64
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Final
from xml.etree import ElementTree as Xml

from eab import token_text
from eab.figures.captions import tree_sentence
from eab.run import Path, RunState

ROW: Final = 28.0
STUB_ROW: Final = 20.0
BOX_HEIGHT: Final = 24.0
STUB_HEIGHT: Final = 17.0
GAP: Final = 58.0
PADDING: Final = 20.0
LONGEST: Final = 44  # characters in a box
PROMPT_LONGEST: Final = 34
MAX_BYTES_OF_CHARACTER: Final = 4  # up to this many later tokens may change a token's piece
ENDS_AT_ONCE: Final = "(ends)"  # shown in the box of a path without text

_ASIDE: Final = ("pruned", "given")  # of paths that are no texts of the run

_NARROW: Final = frozenset("iljtfrI.,;:!|'` ()[]")
_WIDE: Final = frozenset("mwMW@%—…")


@dataclass(frozen=True, slots=True)
class Layout:
    """The boxes of all paths, by path id."""

    x: tuple[float, ...]  # left edge of each box
    y: tuple[float, ...]  # vertical centre of each box
    box_widths: tuple[float, ...]
    prompt_width: float  # width of the prompt's box, which starts at x = 0
    width: float
    height: float


def tidy(run: RunState) -> Layout:
    """Lay out all paths of the run; an empty run has no boxes."""
    prompt = shorten(token_text.visible(run.started.beginning), PROMPT_LONGEST)
    prompt_width = text_width(prompt) + PADDING
    widths = [_box_width(path) for path in run.paths]
    x = [prompt_width + GAP / 2] * len(run.paths)
    for path in run.in_tree_order():
        if path.parent >= 0:
            x[path.id] = x[path.parent] + widths[path.parent] + GAP
    y, height = _middle_lines(run.paths)
    right = max((left + width for left, width in zip(x, widths, strict=True)), default=prompt_width)
    return Layout(tuple(x), tuple(y), tuple(widths), prompt_width, right, max(ROW, height))


def _middle_lines(paths: Sequence[Path]) -> tuple[list[float], float]:
    """y of each path, and the height of all rows. Iterative, because a tree may be deeper than
    Python's stack.
    """
    y = [0.0] * len(paths)
    height = 0.0
    pending = [(0, False)] if paths else []
    while pending:
        path, children_done = pending.pop()
        children = [child for child in paths[path].children if child < len(paths)]
        if not children:
            row = STUB_ROW if paths[path].status in _ASIDE else ROW
            y[path] = height + row / 2
            height += row
        elif children_done:
            y[path] = (y[children[0]] + y[children[-1]]) / 2
        else:
            pending.append((path, True))
            pending += [(child, False) for child in reversed(children)]
    return y, height


def _box_width(path: Path) -> float:
    return text_width(shorten("".join(pieces(path)), LONGEST)) + PADDING


def pieces(path: Path, first: int = 0) -> list[str]:
    """The visible text of a path, one piece per token, from token number `first` on.

    A character that is split over several tokens belongs to the last of them. The piece of a
    control token is empty, because the mark of the path shows that it has ended. A path that ends
    without text gets the piece ENDS_AT_ONCE, so that its box is not empty.
    """
    pieces: list[str] = []
    incomplete = ""
    start = _start_of_character(path, first)
    for token in path.tokens[start:]:
        incomplete += token.shown
        if _is_incomplete(incomplete):
            pieces.append("")
            continue
        pieces.append(_visible(incomplete))
        incomplete = ""
    if incomplete and pieces:
        pieces[-1] = _visible(incomplete)
    if path.status == "finished" and pieces and not any(token.shown for token in path.tokens):
        pieces[-1] = ENDS_AT_ONCE
    return pieces[first - start :]


def _start_of_character(path: Path, first: int) -> int:
    """The index of an earlier token after which the character at token `first` starts."""
    texts = 0
    while first > 0 and texts < MAX_BYTES_OF_CHARACTER:
        first -= 1
        texts += bool(path.tokens[first].shown)
    return first


@lru_cache(maxsize=1 << 16)
def _visible(text: str) -> str:
    return token_text.visible_join([text])


def _is_incomplete(text: str) -> bool:
    """Whether the text ends inside a multi-byte character."""
    tail = text[-3:].encode("utf-8", "surrogateescape")[-3:]
    for length in range(1, len(tail) + 1):
        first = tail[-length]
        if not 0x80 <= first < 0xF5:
            return False
        if first >= 0xC0:
            return length < (2 if first < 0xE0 else 3 if first < 0xF0 else 4)
    return False


def shorten(text: str, longest: int) -> str:
    """The text; if longer than `longest` characters, its two ends around an ellipsis."""
    if len(text) <= longest:
        return text
    head = longest * 3 // 5
    return f"{text[:head]} … {text[len(text) - (longest - head - 3) :]}"


def text_width(text: str) -> float:
    """Approximate width at 13 px in a sans-serif font; only a browser can measure it exactly."""
    return sum(_character_width(character) for character in text)


@lru_cache(maxsize=1 << 14)
def _character_width(character: str) -> float:
    if character in _NARROW:
        return 4.2
    if character in _WIDE or character.isupper():
        return 10.5
    return 13.5 if unicodedata.east_asian_width(character) in "WF" else 7.3


MARGIN: Final = 14.0
MARKS: Final = 60.0  # room for the mark to the right of a box
TITLE: Final = 24.0

_INK, _SOFT, _LINE, _FORK, _ENDED = "#1f1f1f", "#6a6a6a", "#c9c9c9", "#8a2e7a", "#00664b"
_MARKS: Final = {
    "forked": ("◆", _FORK),
    "finished": ("■", _ENDED),
    "pruned": ("×", _SOFT),
    "live": ("●", _ENDED),
    "given": ("?", _SOFT),
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
    _text(stage, 10, middle + 4.5, prompt, style=_fitted(prompt))


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
    pruned = path.status in _ASIDE
    dashes = {"stroke-dasharray": "4 3"} if pruned else {}
    _frame(stage, x, y, width, STUB_HEIGHT if pruned else BOX_HEIGHT, {"fill": "#ffffff", **dashes})
    words = shorten("".join(pieces(path)), LONGEST)
    _text(stage, x + 11, y + 4, words, _SOFT if pruned else _INK, _fitted(words))
    is_cut = path.finish_reason == "length" and not pruned
    sign, colour = ("→", _ENDED) if is_cut else _MARKS[path.status]
    _text(stage, x + width + 4, y + 4.5, sign, colour)
    if path.parent >= 0 and not (pruned or path.is_rest):
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


def _fitted(words: str) -> dict[str, str]:
    """Gives words the width of their box, in any font."""
    return {"textLength": f"{text_width(words):.0f}", "lengthAdjust": "spacingAndGlyphs"}


def picture(svg: str, words: str) -> str:
    """An SVG as an HTML image, which is shown even in a notebook that is not trusted."""
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(words)}">'


WIDTH: Final = 150.0
HEIGHT: Final = 64.0
DOT: Final = 2.2  # radius
_COLOUR: Final = "#7f8792"  # visible on white and on black
_HEAVIEST: Final = 4.0  # line width of a path with weight 1


def thumbnail(run: RunState) -> str:
    """All paths as lines, wider for heavier paths, with a dot where a text ends."""
    layout = tidy(run)
    across = (WIDTH - 2 * DOT) / max(1.0, layout.width)
    down = (HEIGHT - 2 * DOT) / max(1.0, layout.height)
    svg = Xml.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH:g} {HEIGHT:g}",
            "width": f"{WIDTH:g}",
            "height": f"{HEIGHT:g}",
            "fill": "none",
            "stroke": _COLOUR,
        },
    )
    for path in run.paths:
        if path.status in _ASIDE:
            continue
        begin, y = DOT + layout.x[path.id] * across, DOT + layout.y[path.id] * down
        end = begin + layout.box_widths[path.id] * across
        if path.parent < 0:
            start_x, start_y = DOT, y
        else:
            parent = path.parent
            start_x = DOT + (layout.x[parent] + layout.box_widths[parent]) * across
            start_y = DOT + layout.y[parent] * down
        drawn = f"M{start_x:.1f} {start_y:.1f}L{begin:.1f} {y:.1f}L{end:.1f} {y:.1f}"
        width = f"{max(0.6, _HEAVIEST * path.weight):.2f}"
        Xml.SubElement(svg, "path", {"d": drawn, "stroke-width": width, "opacity": "0.6"})
        if path.status != "forked":
            place = {"cx": f"{end:.1f}", "cy": f"{y:.1f}", "r": f"{DOT:g}"}
            Xml.SubElement(svg, "circle", place | {"fill": _COLOUR, "stroke": "none"})
    return Xml.tostring(svg, encoding="unicode")
