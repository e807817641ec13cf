"""What the engine asks of a drafter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A path that asks for guesses.

    text: the tokens so far, prompt included; not to be changed. step: of the first guess. lineage:
    see eab.branching.random_streams.
    most: guesses that are of use.
    """

    path: int
    stream_key: int
    text: Sequence[int]
    step: int
    most: int


class Drafter(Protocol):
    """Guesses the next tokens of the paths of one run. Path 0 exists from the start."""

    def propose(self, contexts: Sequence[DraftRequest]) -> list[list[int]]:
        """Per context at most `most` tokens that may follow its text."""
        ...

    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child begins with its text."""
        ...

    def release(self, path: int) -> None:
        """End `path`."""
        ...
