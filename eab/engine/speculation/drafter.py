"""The interface of a drafter, and the drafters.

A smaller model with its own cache proposes tokens for all paths in the same passes. It uses the
random number that the target will use at that step. So where both models agree, the draft token is
accepted at any entropy.

Another draws on what followed the same tokens earlier. Prompt lookup (Saxena, 2023,
github.com/apoorvumang/prompt-lookup-decoding; vLLM calls it ngram) searches the path's own tokens.
Sibling lookup also searches the other paths of the tree, because siblings repeat each other.

The last draws on the server that computes the predictions. Asked for several tokens instead of
one, a server returns its own most likely tokens and the prediction before each of them. While the
run draws the same tokens, one request serves several steps. At a fork, the child that takes the
server's token keeps using its predictions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor

from eab.config import BranchingConfig
from eab.engine.branching.filters import penalties, processed
from eab.engine.branching.policy import Policy
from eab.engine.branching.sampling import Predictions
from eab.engine.caches.factory import make_cache
from eab.engine.caches.server import UNKNOWN, ServerCache
from eab.engine.models.base import LanguageModel
from eab.errors import ModelError

# For each path with draft tokens: the number drafted and the number accepted.
Verified: TypeAlias = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A request for draft tokens for one path."""

    path: int
    stream_key: int  # the key of its random stream (see `eab.engine.branching.random_streams`)
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


CHUNK = 256  # tokens of a path per pass of the draft model

# Target -> the draft models known to have its vocabulary
_SAME_VOCABULARY: Final[WeakKeyDictionary[LanguageModel, WeakSet[LanguageModel]]] = (
    WeakKeyDictionary()
)


class DraftModel(Drafter):
    """Drafts with a model; the policy of the target's run chooses the draft tokens."""

    def __init__(self, model: LanguageModel, config: BranchingConfig, policy: Policy) -> None:
        self._model, self._config, self._policy = model, config, policy
        self._penalties = penalties(config)
        self._cache = make_cache("tree", model.kv_shape, config.r, config.kv_limit_mib * 2**20)
        self._computed: dict[int, list[int]] = {0: []}  # path -> its tokens in the cache

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """Draft tokens up to where this model may fork, because the target may fork there too."""
        drafts: dict[int, list[int]] = {request.path: [] for request in requests}
        drafting = [request for request in requests if request.limit > 0]
        first_step = min((request.step for request in requests), default=0)
        self._cache.reserve(0, self._config.max_new_tokens - first_step + 1)
        for request in drafting:
            self._trim_rejected(request)
        while drafting:
            scores = self._scores(drafting, drafts)
            predictions = Predictions(scores, self._config)
            steps = [request.step + len(drafts[request.path]) for request in drafting]
            at = [(request.stream_key, step) for request, step in zip(drafting, steps, strict=True)]
            predictions.draw_next(self._policy.uniforms(at), [])
            forced = self._policy.forced_tokens(predictions, at)
            asked, drafting = drafting, []
            for request, token in zip(asked, forced, strict=True):
                if token is not None:
                    drafts[request.path].append(token)
                    if len(drafts[request.path]) < request.limit:
                        drafting.append(request)
        return list(drafts.values())

    def _scores(self, requests: Sequence[DraftRequest], drafts: dict[int, list[int]]) -> Tensor:
        """The scores that the policy sees after each path and its draft, (P, V)."""
        logits = self._next_logits(requests, drafts)
        if not self._penalties:
            return logits
        texts = [[*request.tokens, *drafts[request.path]] for request in requests]
        return processed(self._penalties, logits, texts)

    def _next_logits(
        self, requests: Sequence[DraftRequest], drafts: dict[int, list[int]]
    ) -> Tensor:
        """Compute the pending tokens of each path and its draft; return the next logits (P, V)."""
        pending = {}
        for request in requests:
            tokens = [*request.tokens, *drafts[request.path]]
            pending[request.path] = tokens[len(self._computed[request.path]) :]
        while long := {path: new[:CHUNK] for path, new in pending.items() if len(new) > CHUNK}:
            self._forward(long)
            pending = {path: new[len(long.get(path, ())) :] for path, new in pending.items()}
        return self._forward(pending)

    def _forward(self, pending: Mapping[int, Sequence[int]]) -> Tensor:
        """Compute these tokens of these paths; return the logits (P, V) after the last of each."""
        logits = self._model.forward([self._cache.prepare([*pending], [*pending.values()])])
        for path, tokens in pending.items():
            self._computed[path] = [*self._computed[path], *tokens]
        return logits

    def _trim_rejected(self, request: DraftRequest) -> None:
        """Remove computed tokens that the target rejected. At least the last token is removed and
        computed again, for its logits.
        """
        computed, tokens = self._computed[request.path], request.tokens
        same = 0
        while same < min(len(computed), len(tokens) - 1) and computed[same] == tokens[same]:
            same += 1
        if same < len(computed):
            self._cache.trim(request.path, same)
            self._computed[request.path] = computed[:same]

    def fork(self, path: int, children: Sequence[int]) -> None:
        self._cache.fork(path, children)
        computed = self._computed.pop(path)
        self._computed |= {child: computed for child in children}  # never modified in place

    def release(self, path: int) -> None:
        self._cache.release(path)
        del self._computed[path]


def check_same_vocabulary(draft: LanguageModel, target: LanguageModel) -> None:
    """Check, once per pair, that token ids mean the same to both models; else ModelError."""
    if draft in (known := _SAME_VOCABULARY.setdefault(target, WeakSet())):
        return
    size, other = target.card.vocab_size, draft.card.vocab_size
    both = range(min(size, other))
    differs = next((token for token in both if draft.text(token) != target.text(token)), None)
    if size != other or differs is not None:
        what = f"{other} tokens instead of {size}" if size != other else f"another token {differs}"
        raise ModelError(
            f"the draft model {draft.card.name} has {what}; it must have the same vocabulary as "
            f"{target.card.name}"
        )
    known.add(draft)
