"""The part of a text that is its answer: all of it, its first sentence, or a pattern's match.

The first sentence ends where no continuation can move its end. A text is read from its start. At
each mark that may end a sentence, `sentencex` sees the text up to the next word, and what it finds
there stands, whatever follows.
"""

import re
import time
from collections.abc import Callable
from typing import Any, Final, Literal, NewType, TypeAlias, cast, get_args

import regex
from sentencex import get_sentence_boundaries

from eab.errors import ConfigError, check_one_of
from eab.formatting import quoted

PartName: TypeAlias = Literal["text", "sentence", "after-thinking"]
PatternPart = NewType("PatternPart", str)  # PATTERN followed by a regular expression
Part: TypeAlias = PartName | PatternPart
GivenPart: TypeAlias = Part | re.Pattern[str]

TEXT: Final = "text"
SENTENCE: Final = "sentence"
AFTER_THINKING: Final = "after-thinking"
PARTS: Final = get_args(PartName)
PATTERN: Final = "regex:"
_FLAGS: Final = {"a": re.A, "i": re.I, "m": re.M, "s": re.S, "x": re.X}
LONGEST_PATTERN: Final = 500  # characters
MOST_SECONDS: Final = 2.0  # time limit for searching all texts of a run with one pattern


def check_part(part: str) -> Part:
    """Return `part` if it is valid; ConfigError if it is unknown or its pattern is wrong."""
    if isinstance(part, str) and part.startswith(PATTERN):
        _compiled(part.removeprefix(PATTERN))
    else:
        check_one_of(PARTS, part, "answers are grouped by", more=f", {PATTERN}PATTERN")
    return cast(Part, part)


def part_of(given: GivenPart) -> Part:
    """The part as a string; a compiled pattern becomes PATTERN with its flags."""
    if not isinstance(given, re.Pattern) or not isinstance(given.pattern, str):
        return check_part(given)
    return check_part(f"{PATTERN}{_with_flags(given)}")


def _with_flags(given: re.Pattern[str]) -> str:
    letters = "".join(letter for letter, flag in _FLAGS.items() if given.flags & flag)
    flags = f"(?{letters})" if letters else ""
    return f"{flags}{given.pattern}"


def reader(part: Part) -> Callable[[str], str | None]:
    """A function that finds the answer in a text, or None; ConfigError after MOST_SECONDS."""
    check_part(part)
    if not part.startswith(PATTERN):
        return lambda text: text
    searcher = Searcher(part.removeprefix(PATTERN), groups=1)

    def answer(text: str) -> str | None:
        match = searcher.search(text)
        return match[1] if match else None

    return answer


class Searcher:
    """A regular expression, and the time that is left for it: MOST_SECONDS for all texts.

    Args:
        groups: How many it must have; None: any number.
        end: When the time is over, by `time.monotonic`, if several share it.

    Attributes:
        looks_around: Whether what follows a match, or its absence, may undo the match.

    Raises:
        ConfigError: The pattern is wrong, has not this many groups, or is too long.
    """

    def __init__(self, pattern: str, groups: int | None = None, end: float | None = None) -> None:
        self._pattern = _compiled(pattern, groups)
        self._end = time.monotonic() + MOST_SECONDS if end is None else end
        self.looks_around = _LOOKS_AROUND.search(pattern) is not None

    @classmethod
    def of(cls, pattern: re.Pattern[str]) -> "Searcher":
        """For a compiled pattern, with its flags."""
        return cls(_with_flags(pattern))

    def search(self, text: str) -> Any:
        """The first match in the text, or None; ConfigError if no time is left."""
        left = max(0.001, self._end - time.monotonic())
        try:
            return self._pattern.search(text, timeout=left, concurrent=True)
        except TimeoutError as error:
            raise ConfigError(
                f"the pattern {quoted(self._pattern.pattern)} takes more than {MOST_SECONDS:g} s "
                "to search the texts; write one with fewer nested repeats"
            ) from error


# Anchors at an end, word boundaries, looking ahead or behind, and conditions
_LOOKS_AROUND: Final = re.compile(r"\$|\\[bBZzmMG]|\(\?(?:<?[=!]|\()")


def _compiled(pattern: str, groups: int | None = 1) -> Any:
    if len(pattern) > LONGEST_PATTERN:
        raise ConfigError(
            f"the pattern has {len(pattern):,} characters; at most {LONGEST_PATTERN} are allowed. "
            "Shorten it"
        )
    try:
        compiled = regex.compile(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"{quoted(pattern)} is not a regular expression ({error}); write one such as "
            r"answer is (\w+)"
        ) from error
    if groups is not None and compiled.groups != groups:
        raise ConfigError(
            f"the pattern {quoted(pattern)} has {compiled.groups} groups; it must have exactly "
            r"one, for the answer, as in: answer is (\w+). Write other groups as (?:...)"
        )
    return compiled


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
