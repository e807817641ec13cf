"""Draft tokens from the server that computes the predictions: it continues by itself.

If asked for several tokens instead of one, a server answers with its own most likely tokens and the
prediction before each of them. While the run draws the same tokens, one request serves several
steps. At a fork, the child that takes the server's token continues with its predictions.
"""

from collections.abc import Sequence

from eab.caches.server import UNKNOWN, ServerCache
from eab.speculation.drafter import Drafter, DraftRequest, Verified


class RunAhead(Drafter):
    """Drafts by the server; the pass that verifies the draft tokens also makes them known."""

    def __init__(self, cache: ServerCache) -> None:
        self._cache = cache

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """A place for each token."""
        return [[UNKNOWN] * request.limit for request in requests]

    def drafted(self, path: int, proposed: list[int]) -> list[int]:
        """The server may have ended earlier."""
        return self._cache.run_ahead(path)

    def outcomes(self, verified: Verified) -> tuple[int, Verified]:
        """Where a path may fork, the decision verifies the next token. So these are the tokens that
        were verified before the pass began.
        """
        return self._cache.ahead, self._cache.drafts

    def fork(self, path: int, children: Sequence[int]) -> None:
        pass

    def release(self, path: int) -> None:
        pass
