"""The contents of a prefix cache at one moment, as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentNow:
    """A segment at one moment."""

    number: int
    parent: int  # number of the segment before it; -1 for none
    text: str | None  # None if the text is another visitor's
    rows: int
    readers: int  # runs that read the segment in place
    found: int  # how many runs, or threshold probes, found the segment at their start


@dataclass(frozen=True, slots=True)
class PrefixesNow:
    """The prefix cache of a model at one moment."""

    model: str  # with its weight format
    row_bytes: int
    byte_limit: int
    tokens_asked: int  # tokens of all prompts since the model was loaded
    tokens_found: int  # how many of these tokens did not have to be computed again
    can_reuse: bool  # whether texts with the same start can share the model's rows
    segments: Sequence[SegmentNow]  # parents come before their children

    @property
    def bytes_held(self) -> int:
        """Bytes held by all segments."""
        return self.row_bytes * sum(segment.rows for segment in self.segments)
