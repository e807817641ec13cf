"""Stop strings: a path ends when its text contains one of them.

The search compares exact bytes (see eab.token_text), so it finds characters that are split across
tokens. It needs only the end of the text.
"""

from collections.abc import Sequence

from eab import token_text


class StopStrings:
    """The stop strings of a run; false if there are none."""

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
        window = tail + token_text.to_bytes(text)
        places = [place for stop in self._stop if (place := window.find(stop)) >= 0]
        cut = len(window) - min(places) if places else 0
        return window[max(0, len(window) - self._tail) :], cut
