"""Where the boxes of the tree stand: left to right, one row per leaf, parents in the middle of
their children.

Units are CSS pixels at scale 1. A box begins where its parent ends, plus a gap, so boxes never
overlap: subtrees keep to rows of their own, and a child stands right of its parent. Pruned leaves
are stubs in lower rows.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from eab import token_text
from eab.run import Path, Run

ROW: Final = 28.0
STUB_ROW: Final = 20.0
BOX_HEIGHT: Final = 24.0  # boxes of stubs are lower: see eab/board/static/tree.js
STUB_HEIGHT: Final = 17.0
GAP: Final = 58.0
PADDING: Final = 20.0
LONGEST: Final = 44  # characters of a box
PROMPT_LONGEST: Final = 34

_NARROW: Final = frozenset("iljtfrI.,;:!|'` ()[]")
_WIDE: Final = frozenset("mwMW@%—…")


@dataclass(frozen=True, slots=True)
class Layout:
    """One box per path, in order of birth: left edge, middle line, width. The whole is `width` x
    `height`.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    box: tuple[float, ...]
    prompt_box: float
    width: float
    height: float


def tidy(run: Run) -> Layout:
    """Lay out all paths of the run; an empty run has no boxes."""
    prompt = shorten(token_text.visible(run.started.beginning), PROMPT_LONGEST)
    prompt_box = text_width(prompt) + PADDING
    boxes = [_box_width(path) for path in run.paths]
    x: list[float] = []
    for path in run.paths:  # parents are born before their children
        x.append(
            prompt_box + GAP / 2 if path.parent < 0 else x[path.parent] + boxes[path.parent] + GAP
        )
    y, height = _middle_lines(run.paths)
    right = max((left + width for left, width in zip(x, boxes, strict=True)), default=prompt_box)
    return Layout(tuple(x), tuple(y), tuple(boxes), prompt_box, right, max(ROW, height))


def _middle_lines(paths: Sequence[Path]) -> tuple[list[float], float]:
    """y of each path and the height of all rows; iterative, for trees deeper than Python's
    stack.
    """
    y = [0.0] * len(paths)
    height = 0.0
    waiting = [(0, False)] if paths else []
    while waiting:
        path, children_done = waiting.pop()
        children = [child for child in paths[path].children if child < len(paths)]
        if not children:
            row = STUB_ROW if paths[path].status == "pruned" else ROW
            y[path] = height + row / 2
            height += row
        elif children_done:
            y[path] = (y[children[0]] + y[children[-1]]) / 2
        else:
            waiting.append((path, True))
            waiting += [(child, False) for child in reversed(children)]
    return y, height


def _box_width(path: Path) -> float:
    return text_width(shorten("".join(pieces(path)), LONGEST)) + PADDING


def pieces(path: Path) -> list[str]:
    """Each token's part of the path's visible text; a character split over tokens belongs to its
    last one.

    Control tokens have no part in it: that a path ended is shown by its mark.
    """
    found: list[str] = []
    held = ""
    for token in path.tokens:
        held += "" if token.special else token.text
        if _incomplete(held):
            found.append("")
            continue
        found.append(_visible(held))
        held = ""
    if held and found:
        found[-1] = _visible(held)
    return found


@lru_cache(maxsize=1 << 16)
def _visible(text: str) -> str:
    return token_text.visible_join([text])


def _incomplete(text: str) -> bool:
    """Whether the text ends in bytes that the next token could make a character of."""
    tail = text[-3:].encode("utf-8", "surrogateescape")[-3:]
    for length in range(1, len(tail) + 1):
        first = tail[-length]
        if not 0x80 <= first < 0xF5:
            return False
        if first >= 0xC0:
            return length < (2 if first < 0xE0 else 3 if first < 0xF0 else 4)
    return False


def shorten(text: str, longest: int) -> str:
    """The text, or its two ends around an ellipsis."""
    if len(text) <= longest:
        return text
    head = longest * 3 // 5
    return f"{text[:head]} … {text[len(text) - (longest - head - 3) :]}"


def text_width(text: str) -> float:
    """About how wide the text is at 13 px in a sans-serif font; browsers measure, layouts must
    guess.
    """
    return sum(_character_width(character) for character in text)


@lru_cache(maxsize=1 << 14)
def _character_width(character: str) -> float:
    if character in _NARROW:
        return 4.2
    if character in _WIDE or character.isupper():
        return 10.5
    return 13.5 if unicodedata.east_asian_width(character) in "WF" else 7.3
