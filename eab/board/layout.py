"""Positions of the tree's boxes: left to right, one row per leaf, parents in the middle.

Units are CSS pixels at scale 1. A box starts where its parent ends, plus a gap, and each subtree
has rows of its own, so boxes never overlap. Pruned leaves are stubs in lower rows. This layout is
for still pictures; `eab/board/static/layout.js` does the same in the browser, where widths are
measured and the tree is fitted into its panel.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from eab import token_text
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
    x: list[float] = []
    for path in run.paths:  # parents are born before their children
        is_root, parent = path.parent < 0, path.parent
        x.append(prompt_width + GAP / 2 if is_root else x[parent] + widths[parent] + GAP)
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
            row = STUB_ROW if paths[path].status == "pruned" else ROW
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
