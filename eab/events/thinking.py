"""Where the thought of a reasoning model ends, by the markers that its chat template names."""

from collections.abc import Sequence
from typing import Final

import regex

_NAME: Final = r"[\w:]*(?:think|thought|reason)[\w:]*"
# The markers of the common families; Cohere's and those of gpt-oss are control tokens.
_MARKER: Final = regex.compile(
    rf"(?P<end></{_NAME}>|\[/{_NAME}\]|◁/{_NAME}▷|<\|end_{_NAME}\|>|"
    r"<\|channel\|>final<\|message\|>)|"
    rf"<{_NAME}>|\[{_NAME}\]|◁{_NAME}▷|<\|(?:start|begin)_{_NAME}\|>|"
    r"<\|channel\|>analysis<\|message\|>",
    regex.IGNORECASE,
)
# What differs between the two markers of a pair; a template may name only one of them.
_SIDE: Final = regex.compile(r"/|start_|begin_|end_|analysis|final", regex.IGNORECASE)


def markers_in(template: str) -> tuple[str, ...]:
    """The markers of thoughts that a chat template names."""
    return tuple(dict.fromkeys(marker[0] for marker in _MARKER.finditer(template)))


def end_of_thinking(prompt: str, text: str, named: Sequence[str] = ()) -> int | None:
    """Where the answer begins in a text with its control tokens: after the last thought.

    Args:
        prompt: What the model continued; a template may open the thought at its end.
        named: The markers that the template names, for both sides; if empty, those of the common
            families are known by their shape.

    Returns:
        None if the thought was not closed.
    """
    last = _last_marker(text, named)
    if last:
        return last.end() if last["end"] else None
    prompt = prompt.rstrip()
    opened = _last_marker(prompt, named)
    return None if opened and not opened["end"] and opened.end() == len(prompt) else 0


def _last_marker(text: str, named: Sequence[str]) -> "regex.Match[str] | None":
    pairs = set(map(_pair, named))
    found = [one for one in _MARKER.finditer(text) if not named or _pair(one[0]) in pairs]
    return found[-1] if found else None


def _pair(marker: str) -> str:
    pair: str = _SIDE.sub("", marker)
    return pair.casefold()
