"""Draft tokens from a smaller model with its own cache, for all paths in the same passes.

The draft model uses the random number that the target will use at that step. So where both models
agree, the draft token is accepted at any entropy. A run has the same tokens with or without a draft
model.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor

from eab.branching.logits_processing import penalties, processed
from eab.branching.policy import Policy
from eab.branching.sampling import Predictions
from eab.caches.factory import make_cache
from eab.config import BranchingConfig
from eab.errors import ModelError
from eab.models.base import LanguageModel
from eab.speculation.drafter import Drafter, DraftRequest

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
