"""The interface of a drafter, and two drafters without a model.

The first draws on what followed the same tokens earlier. Prompt lookup (Saxena, 2023,
github.com/apoorvumang/prompt-lookup-decoding; vLLM calls it ngram) searches the path's own tokens.
Sibling lookup also searches the other paths of the tree, because siblings repeat each other.

The other draws on the server that computes the predictions. Asked for several tokens instead of
one, a server returns its own most likely tokens and the prediction before each of them. While the
run draws the same tokens, one request serves several steps. At a fork, the child that takes the
server's token keeps using its predictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from eab.caches.server import UNKNOWN, ServerCache

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


MAX_NGRAM, MIN_NGRAM = 3, 2  # length of a match, in tokens

# N-gram -> its last occurrence: a path's tokens, and the index after the n-gram.
_NGrams = dict[tuple[int, ...], tuple[list[int], int]]


class NgramLookup(Drafter):
    """Searches the tokens of the path or, with `siblings`, of all paths of the run."""

    def __init__(self, siblings: bool) -> None:
        self._siblings: Final = siblings
        self._ngrams: dict[int, _NGrams] = {0: {}}
        self._tokens: dict[int, list[int]] = {0: []}

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """Index all paths before searching for the first one."""
        for request in requests:
            self._index(request)
        return [self._find(request) for request in requests]

    def _index(self, request: DraftRequest) -> None:
        """Index the n-grams of the tokens that are new since the path's last request."""
        tokens, ngrams = self._tokens[request.path], self._ngrams[request.path]
        for token in request.tokens[len(tokens) :]:
            for size in range(MIN_NGRAM, MAX_NGRAM + 1):
                if len(tokens) >= size:
                    ngrams[tuple(tokens[-size:])] = (tokens, len(tokens))
            tokens.append(token)

    def _find(self, request: DraftRequest) -> list[int]:
        """The tokens after the latest occurrence of the longest n-gram that ends this path."""
        ngrams = self._ngrams[request.path]
        for size in range(MAX_NGRAM, MIN_NGRAM - 1, -1):
            match = ngrams.get(tuple(request.tokens[-size:]))
            if match is not None:
                return self._copy(*match, request)
        return []

    def _copy(self, source: list[int], start: int, request: DraftRequest) -> list[int]:
        """The tokens from `start` on. If they reach the end of the path's own tokens, the copy
        repeats from `start`, since the path repeats itself.
        """
        draft = source[start : start + request.limit]
        period = len(draft)
        if source is self._tokens[request.path]:
            draft += [draft[index % period] for index in range(period, request.limit)]
        return draft

    def fork(self, path: int, children: Sequence[int]) -> None:
        ngrams, tokens = self._ngrams.pop(path), self._tokens.pop(path)
        for child in children:
            self._ngrams[child] = ngrams if self._siblings else dict(ngrams)
            self._tokens[child] = list(tokens)

    def release(self, path: int) -> None:
        """Drop the path; with siblings, its tokens can still be found."""
        del self._ngrams[path], self._tokens[path]


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
