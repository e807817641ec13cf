"""Draft tokens from the server that computes the predictions: it goes on by itself.

Asked for several tokens instead of one, a server answers with its own most likely tokens, and with
the prediction before each of them. As long as they are the tokens that the run draws anyway, one
request serves several steps. At a fork the child that takes the server's token goes on with its
predictions.
"""

from collections.abc import Sequence

from eab.caches.server import UNKNOWN, ServerCache
from eab.speculation.drafter import DraftRequest, Verified


class RunAhead:
    """See Drafter. The draft tokens become known by the pass that verifies them."""

    def __init__(self, cache: ServerCache) -> None:
        self._cache = cache

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """A place for each token."""
        return [[UNKNOWN] * request.limit for request in requests]

    def drafted(self, path: int, proposed: list[int]) -> list[int]:
        """The server may have ended earlier."""
        return self._cache.run_ahead(path)

    def outcomes(self, verified: Verified) -> tuple[int, Verified]:
        """Where a path may fork, the decision verifies the next token. So
        these are the tokens that were verified up to the beginning of the pass.
        """
        return self._cache.ahead, self._cache.drafts

    def fork(self, path: int, children: Sequence[int]) -> None:
        pass

    def release(self, path: int) -> None:
        pass
