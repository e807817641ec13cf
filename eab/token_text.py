"""Token text that loses nothing: a token may hold half of a UTF-8 character.

Texts travel as `bytes.decode("utf-8", "surrogateescape")`: bytes that are no character by
themselves become lone surrogates (U+DC80..U+DCFF), and joining the tokens of a path gives the exact
bytes back.
"""

from collections.abc import Iterable
from functools import lru_cache

_BYTES = "utf-8", "surrogateescape"
_VISIBLE = {"\n": "↵", "\r": "␍", "\t": "⇥"}
_NOT_IN_XML = (0xFFFE, 0xFFFF)  # SVG and GraphML would be broken by them


def from_bytes(raw: bytes) -> str:
    """The exact text of a token's bytes."""
    return raw.decode(*_BYTES)


def join(texts: Iterable[str]) -> str:
    """The text that these tokens spell; what is still no character becomes U+FFFD."""
    return "".join(texts).encode(*_BYTES).decode("utf-8", "replace")


@lru_cache(maxsize=2**16)  # a live board shows the same few thousand tokens again and again
def visible(text: str) -> str:
    """One token's text for the eye: line breaks and tabs as signs, incomplete bytes as `⟨E2⟩`."""
    return "".join(_visible_character(character) for character in text)


def visible_join(texts: Iterable[str]) -> str:
    """Several tokens' text for the eye: halves that meet become their character."""
    return visible("".join(texts).encode(*_BYTES).decode(*_BYTES))


def _visible_character(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"⟨{code - 0xDC00:02X}⟩"
    if character in _VISIBLE:
        return _VISIBLE[character]
    if code < 0x20 or 0x7F <= code < 0xA0 or code in _NOT_IN_XML or _moves_the_text(code):
        return f"⟨U+{code:04X}⟩"
    return character


def _moves_the_text(code: int) -> bool:
    """Direction overrides and isolates, which would let a token rearrange its neighbours."""
    return 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or code in (0x200E, 0x200F)
