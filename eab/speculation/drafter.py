"""The interface of a drafter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

# For each path with draft tokens, how many there were, and how many were accepted.
Verified: TypeAlias = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A path that asks for draft tokens."""

    path: int
    stream_key: int  # the key of its random stream (see `eab.branching.random_streams`)
    tokens: Sequence[int]  # its tokens so far, with the prompt; not to be changed
    step: int
    limit: int  # the number of draft tokens that are of use


class Drafter(Protocol):
    """Drafts the next tokens of the paths of one run. Path 0 exists from the start."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """For each request at most `limit` tokens that may follow its tokens."""
        ...

    def drafted(self, path: int, proposed: list[int]) -> list[int]:
        """After the pass: what was drafted for this path, where `propose` gave `proposed`."""
        return proposed

    def outcomes(self, verified: Verified) -> tuple[int, Verified]:
        """How many draft tokens were in the pass, and those that are verified now."""
        return sum(drafted for drafted, _ in verified), verified

    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child begins with its tokens."""
        ...

    def release(self, path: int) -> None:
        """End `path`."""
        ...
