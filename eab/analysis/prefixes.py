"""What a prefix cache holds at one moment, as values."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentNow:
    """A segment at one moment."""

    number: int
    parent: int  # the number of the segment that it follows; -1: none
    text: str | None  # None if it is of a run of others
    rows: int
    readers: int  # runs that read it where it is
    found: int  # how many runs, or probes of their thresholds, began with it


@dataclass(frozen=True, slots=True)
class PrefixesNow:
    """The prefix cache of a model at one moment."""

    model: str  # with its weight format
    row_bytes: int
    byte_limit: int
    tokens_asked: int  # of all prompts since the model was loaded
    tokens_found: int  # how many of them were not computed again
    can_reuse: bool  # whether the model's rows serve every text that begins alike
    segments: Sequence[SegmentNow]  # each after the one that it follows

    @property
    def bytes_held(self) -> int:
        """Bytes of all segments."""
        return self.row_bytes * sum(segment.rows for segment in self.segments)
