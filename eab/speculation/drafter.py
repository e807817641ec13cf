"""What the engine needs of a drafter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A path that asks for draft tokens.

    Attributes:
        path: Its id.
        stream_key: The key of its random stream (see `eab.branching.random_streams`).
        tokens: Its tokens so far, with the prompt; not to be changed.
        step: The step of the first draft token.
        limit: The number of draft tokens that are of use.
    """

    path: int
    stream_key: int
    tokens: Sequence[int]
    step: int
    limit: int


class Drafter(Protocol):
    """Drafts the next tokens of the paths of one run. Path 0 exists from the start."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """For each request at most `limit` tokens that may follow its tokens."""
        ...

    def drafted(self, path: int, proposed: list[int]) -> list[int]:
        """After the pass: what was drafted for this path, where `propose` gave `proposed`."""
        ...

    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child begins with its tokens."""
        ...

    def release(self, path: int) -> None:
        """End `path`."""
        ...
