"""The exact text of tokens, which may contain only part of a UTF-8 character.

Texts are kept as `bytes.decode("utf-8", "surrogateescape")`. Bytes that do not form a complete
character become lone surrogates (U+DC80..U+DCFF). So joining the texts of a path's tokens gives the
exact bytes back. A stop string is searched in these bytes.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_BYTES = "utf-8", "surrogateescape"
_LONE = re.compile("[\ud800-\udfff]")
_VISIBLE = {"\n": "↵", "\r": "␍", "\t": "⇥"}


def from_bytes(raw: bytes) -> str:
    """The exact text of a token's bytes."""
    return raw.decode(*_BYTES)


def to_bytes(text: str) -> bytes:
    """The bytes of a token's exact text."""
    return text.encode(*_BYTES)


def exact(texts: Iterable[str]) -> str:
    """The exact text of these tokens together: bytes that complete a character become it."""
    return from_bytes(to_bytes("".join(texts)))


def join(texts: Iterable[str]) -> str:
    """The joined text of these tokens; bytes that do not form a character become U+FFFD."""
    return "".join(texts).encode(*_BYTES).decode("utf-8", "replace")


def encodable(text: str) -> str:
    """The text with lone bytes as `⟨E2⟩`: any encoding can hold it, and different texts differ."""
    return _LONE.sub(lambda lone: _visible_character(lone[0]), text)


def visible(text: str) -> str:
    """The text for display: line breaks and tabs as symbols, lone bytes as `⟨E2⟩`."""
    return text if text.isprintable() else "".join(map(_visible_character, text))


def visible_join(texts: Iterable[str]) -> str:
    """The joined text of tokens for display: bytes that complete a character become it."""
    return visible(exact(texts))


@lru_cache(maxsize=2**12)
def _visible_character(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"⟨{code - 0xDC00:02X}⟩"
    if character in _VISIBLE:
        return _VISIBLE[character]
    if code < 0x20 or 0x7F <= code < 0xA0 or _cannot_be_shown(code) or _moves_the_text(code):
        return f"⟨U+{code:04X}⟩"
    return character


def _cannot_be_shown(code: int) -> bool:
    """Whether SVG and GraphML do not allow the character, or UTF-8 cannot encode it."""
    return code in (0xFFFE, 0xFFFF) or 0xD800 <= code <= 0xDFFF


def _moves_the_text(code: int) -> bool:
    """Whether it is a direction override or isolate, which could reorder the surrounding text."""
    return 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or code in (0x200E, 0x200F)


class StopStrings:
    """The stop strings of a run, at which its texts end; false if there are none.

    The search compares exact bytes, so it finds characters that are split across tokens, and needs
    only the end of the text.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [text.encode("utf-8") for text in stop]
        self._tail = max(map(len, self._stop), default=1) - 1

    def __bool__(self) -> bool:
        return bool(self._stop)

    def search(self, tail: bytes, text: str) -> tuple[bytes, int]:
        """Look for a stop string in the previous `tail` of a text and the token added to it.

        Returns:
            The tail for the next token, and how many bytes to cut off the end: a stop string and
            what follows it; 0 if there is none.
        """
        window = tail + to_bytes(text)
        places = [place for stop in self._stop if (place := window.find(stop)) >= 0]
        cut = len(window) - min(places) if places else 0
        return window[max(0, len(window) - self._tail) :], cut
