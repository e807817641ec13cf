"""The part of a text that is its answer: all of it, its first sentence, or a pattern's match."""

import re
import time
from collections.abc import Callable
from typing import Any, Final, Literal, NewType, TypeAlias, cast, get_args

import regex

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
    letters = "".join(letter for letter, flag in _FLAGS.items() if given.flags & flag)
    flags = f"(?{letters})" if letters else ""
    return check_part(f"{PATTERN}{flags}{given.pattern}")


def reader(part: Part) -> Callable[[str], str | None]:
    """A function that finds the answer in a text, or None; ConfigError after MOST_SECONDS."""
    check_part(part)
    if not part.startswith(PATTERN):
        return lambda text: text
    pattern, end = _compiled(part.removeprefix(PATTERN)), time.monotonic() + MOST_SECONDS

    def search(text: str) -> str | None:
        left = max(0.001, end - time.monotonic())
        try:
            match = pattern.search(text, timeout=left, concurrent=True)
        except TimeoutError as error:
            raise ConfigError(
                f"the pattern {quoted(pattern.pattern)} takes more than {MOST_SECONDS:g} s to "
                "search the texts; write one with fewer nested repeats"
            ) from error
        answer: str | None = match[1] if match else None
        return answer

    return search


def _compiled(pattern: str) -> Any:
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
    if compiled.groups != 1:
        raise ConfigError(
            f"the pattern {quoted(pattern)} has {compiled.groups} groups; it must have exactly "
            r"one, for the answer, as in: answer is (\w+). Write other groups as (?:...)"
        )
    return compiled
