"""Draft tokens from the server that computes the predictions: it continues the text itself.

Asked for several tokens instead of one, a server returns its own most likely tokens and the
prediction before each of them. While the run draws the same tokens, one request serves several
steps. At a fork, the child that takes the server's token keeps using its predictions.
"""

from collections.abc import Sequence

from eab.caches.server import UNKNOWN, ServerCache
from eab.speculation.drafter import Drafter, DraftRequest, Verified


class RunAhead(Drafter):
    """Lets the server draft; the pass that verifies the draft tokens also reveals them."""

    def __init__(self, cache: ServerCache) -> None:
        self._cache = cache

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """A placeholder for each token."""
        return [[UNKNOWN] * request.limit for request in requests]

    def drafted(self, path: int, proposed: list[int]) -> list[int]:
        """The server's tokens for this path; it may have stopped early."""
        return self._cache.run_ahead(path)

    def outcomes(self, verified: Verified) -> tuple[int, Verified]:
        """The tokens that the server adds in this pass, and the outcomes of those verified before
        it. Where a path may fork, the fork decision verifies the next token.
        """
        return self._cache.ahead, self._cache.drafts

    def fork(self, path: int, children: Sequence[int]) -> None:
        pass

    def release(self, path: int) -> None:
        pass
