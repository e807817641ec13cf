"""Where the first sentence of a text ends, so that no continuation can move the end.

A text is read from its start. At each mark that may end a sentence, `sentencex` sees the text up to
the next word, and what it finds there stands, whatever follows.
"""

import re
from typing import Final

import regex
from sentencex import get_sentence_boundaries

_START: Final = re.compile(r"\s*(?:1\.(?=\s))?")  # white space and a list number
_MARK: Final = regex.compile(
    r"\n|[\p{Sentence_Break=STerm}\p{Sentence_Break=ATerm}…]++[\p{Pe}\p{Pf}\p{Pi}\"'*_`]*+"
)
_FULL_STOP: Final = regex.compile(r"\p{Sentence_Break=ATerm}\W*+")
# What must be read after a mark: the next word after a full stop, which may have ended an
# abbreviation; the next character after any other mark.
_NEXT_WORD: Final = regex.compile(r"[^\S\n]*+(?:\n|(?<=\s)(?P<next>\S++)\s)")
_NEXT_CHARACTER: Final = regex.compile(r"[^\S\n]*+(?:\n|(?P<next>\S))")
_CLOSING: Final = "\"'”’»)」"  # one of each kind that the library pairs
_GOES_ON: Final = re.compile(r"\S")  # a full stop inside a number, a name or an address
_CYRILLIC: Final = regex.compile(r"\p{Cyrillic}")
_LONE: Final = re.compile("[\ud800-\udfff]")  # a byte that is no character


def first_sentence(text: str, whole: bool) -> tuple[int, int] | None:
    """Where the first sentence ends, and how many characters must be read to know it.

    Args:
        whole: Whether the text ends here; otherwise it may go on.

    Returns:
        None if it does not end before the end of the text.
    """
    start = _START.match(text)
    read = f"{text} " if whole else text  # at the end, the last word is complete
    for mark in _MARK.finditer(text, start.end() if start else 0):
        if mark[0] == "\n":
            return mark.start(), mark.end()
        is_full_stop = _FULL_STOP.search(mark[0]) is not None
        if is_full_stop and _GOES_ON.match(text, mark.end()):
            continue
        following = (_NEXT_WORD if is_full_stop else _NEXT_CHARACTER).match(read, mark.end())
        if following is None:
            return None
        if following["next"] is None or _is_boundary(
            read[: following.end("next")], following.start("next")
        ):
            return mark.end(), following.end()
    return None


def _is_boundary(text: str, place: int) -> bool:
    """Whether a sentence of the text ends at this place, also if a quotation or bracket that is
    open there is closed later.
    """
    text = _LONE.sub("\ufffd", text)
    language = "ru" if _CYRILLIC.search(text[:place]) else "en"
    return all(
        place in {found["end_index"] for found in get_sentence_boundaries(language, each)}
        for each in (f"{text} ", *(f"{text} x{close} " for close in _CLOSING))
    )
