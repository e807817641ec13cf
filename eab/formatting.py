"""Formats numbers and messages as text, the same on the page and in the terminal."""

import re
from collections.abc import Callable, Sequence
from reprlib import Repr
from typing import Final

_QUOTED: Final = Repr()
_QUOTED.maxstring = _QUOTED.maxother = _QUOTED.maxlong = 60  # characters


def human_bytes(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def listed(words: Sequence[str]) -> str:
    """['a', 'b', 'c'] -> 'a, b and c'."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def as_sentence(message: str) -> str:
    """'the prompt is empty' -> 'The prompt is empty.'; 'a.eab is cut' -> 'a.eab is cut.'"""
    begins_with_a_word = re.match(r"[a-z]+[ ,;:]", message) is not None
    begun = message[:1].upper() + message[1:] if begins_with_a_word else message
    return begun if begun.endswith((".", "!", "?", "…")) or not begun else f"{begun}."


def counted(number: int, thing: str) -> str:
    """1, 'path' -> '1 path'; 2000, 'forward pass' -> '2,000 forward passes'."""
    ending = "es" if thing.endswith(("s", "ch")) else "s"
    return f"{number:,} {thing}{'' if number == 1 else ending}"


def apart(a: float, b: float) -> tuple[str, str]:
    """Two numbers with two decimals, or as many as needed to tell them apart.

    >>> apart(0.6921, 0.6934)
    ('0.692', '0.693')
    """
    digits = next((digits for digits in range(2, 7) if round(a, digits) != round(b, digits)), 2)
    return f"{a:.{digits}f}", f"{b:.{digits}f}"


def times(ratio: float) -> str:
    """2.4375 -> '2.44×', 39700.0 -> '39,700×'."""
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def shortened(text: str, max_length: int) -> str:
    """'once upon a time', 10 -> 'once upon…'."""
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def quoted(value: object) -> str:
    """The repr of any value, shortened for a message: 'x' * 10**6 -> "'xxxxxx...xxxxxx'"."""
    try:
        return shortened(_QUOTED.repr(value), 2 * _QUOTED.maxother)
    except ValueError:  # Python does not convert integers of more than 4,300 digits
        return f"a {type(value).__name__} that is too long to be written"


def reason_of(error: BaseException) -> str:
    """ValueError('no\nmore') -> 'ValueError: no more': a library's error, for a message."""
    return excerpt(f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": "), 200)


def excerpt(text: str, max_length: int) -> str:
    """'once upon a time', 10 -> 'once upon …': the start of a text, cut between two words."""
    if len(text) <= max_length:
        return text
    beginning = text[: max_length - 2]
    space = text.rfind(" ", max_length // 2, max_length - 1)  # not every language has spaces
    return (beginning if space < 0 else text[:space]).rstrip() + " …"


def ending(text: str, max_length: int) -> str:
    """'once upon a time', 8 -> 'a time': the end of a longer text, cut between two words."""
    end = text[-max_length:]
    return end[end.find(" ", 0, max_length // 2) + 1 :]  # not every language has spaces


def ordinal(number: int) -> str:
    """1 -> '1st', 12 -> '12th', 22 -> '22nd'."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number // 10 % 10 == 1 else endings.get(number % 10, 'th')}"


def human_seconds(seconds: float) -> str:
    """0.4 -> '1 s', 75 -> '75 s', 400 -> '7 min'."""
    return f"{max(1, round(seconds))} s" if seconds < 100 else f"{round(seconds / 60)} min"


def with_ratio(value: float, first: float, written: Callable[[float], str]) -> str:
    """The value, with its ratio to `first` in brackets: '8.0 MiB (2.21×)'."""
    unlike = first and value and value != first
    return f"{written(value)} ({times(value / first)})" if unlike else written(value)
