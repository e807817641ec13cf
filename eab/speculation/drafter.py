"""The interface of a drafter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

# For each path with draft tokens: the number drafted and the number accepted.
Verified: TypeAlias = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A request for draft tokens for one path."""

    path: int
    stream_key: int  # the key of its random stream (see `eab.branching.random_streams`)
    tokens: Sequence[int]  # prompt and tokens so far; must not be changed
    step: int
    limit: int  # the largest useful number of draft tokens


class Drafter(Protocol):
    """Drafts the next tokens for the paths of one run. Path 0 exists from the start."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """For each request, at most `limit` tokens that may follow its tokens."""
        ...

    def drafted(self, path: int, proposed: list[int]) -> list[int]:
        """The tokens drafted for this path, known after the pass; `propose` returned `proposed`."""
        return proposed

    def outcomes(self, verified: Verified) -> tuple[int, Verified]:
        """The number of draft tokens in the pass, and the outcomes of those verified now."""
        return sum(drafted for drafted, _ in verified), verified

    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child starts with its tokens."""
        ...

    def release(self, path: int) -> None:
        """End `path`."""
        ...
