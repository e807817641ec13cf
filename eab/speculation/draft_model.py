"""Draft tokens by a smaller model with its own tree cache, for all paths in the same forward
passes.

The draft model uses the random number that the target will use at that step. Where both models
agree, the draft token is accepted at any entropy, and a run with a draft model has the same tokens
as one without.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor

from eab.branching.policy import Policy
from eab.branching.sampling import Predictions
from eab.caches.growth import auto_growth_rule
from eab.caches.tree import TreeCache
from eab.config import AUTO, BranchingConfig
from eab.errors import ModelError
from eab.models.base import LanguageModel
from eab.speculation.drafter import DraftRequest, Verified

CHUNK = 256  # tokens of a path that go through the draft model at once

# Target -> the draft models that are known to have its vocabulary.
_SAME_VOCABULARY: Final[WeakKeyDictionary[LanguageModel, WeakSet[LanguageModel]]] = (
    WeakKeyDictionary()
)


class DraftModel:
    """See Drafter.

    Args:
        policy: What decides the target's run; it also chooses the draft tokens.
    """

    def __init__(self, model: LanguageModel, config: BranchingConfig, policy: Policy) -> None:
        self._model, self._config, self._policy = model, config, policy
        r = auto_growth_rule(None) if config.r == AUTO else config.r
        self._cache = TreeCache(model.kv_shape, r, config.kv_limit_mib * 2**20)
        self._computed: dict[int, list[int]] = {0: []}  # the tokens of each path in the cache

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """A path's draft ends where this model may fork: there the target may
        fork too.
        """
        drafts: dict[int, list[int]] = {request.path: [] for request in requests}
        drafting = [request for request in requests if request.limit > 0]
        first_step = min((request.step for request in requests), default=0)
        self._cache.reserve(0, self._config.max_new_tokens - first_step + 1)
        for request in drafting:
            self._trim_rejected(request)
        while drafting:
            predictions = Predictions(self._next_logits(drafting, drafts), self._config)
            at = [
                (request.stream_key, request.step + len(drafts[request.path]))
                for request in drafting
            ]
            predictions.draw_next(self._policy.uniforms(at), [])
            forced = self._policy.forced_tokens(predictions, at)
            going_on = []
            for request, token in zip(drafting, forced, strict=True):
                if token is not None:
                    drafts[request.path].append(token)
                    if len(drafts[request.path]) < request.limit:
                        going_on.append(request)
            drafting = going_on
        return list(drafts.values())

    def _next_logits(
        self, requests: Sequence[DraftRequest], drafts: dict[int, list[int]]
    ) -> Tensor:
        """Compute the pending tokens of each path and its draft -> logits (P, V) after them."""
        pending = {
            request.path: [*request.tokens, *drafts[request.path]][
                len(self._computed[request.path]) :
            ]
            for request in requests
        }
        while chunks := {
            path: tokens[:CHUNK] for path, tokens in pending.items() if len(tokens) > CHUNK
        }:
            self._forward(chunks)
            pending = {
                path: tokens[len(chunks.get(path, ())) :] for path, tokens in pending.items()
            }
        return self._forward(pending)

    def _forward(self, pending: Mapping[int, Sequence[int]]) -> Tensor:
        """Compute these tokens of these paths -> logits (P, V) after the last of each."""
        logits = self._model.forward([self._cache.prepare([*pending], [*pending.values()])])
        self._computed |= {
            path: [*self._computed[path], *tokens] for path, tokens in pending.items()
        }
        return logits

    def _trim_rejected(self, request: DraftRequest) -> None:
        """Remove computed tokens that the target rejected, and at least the last one, which is
        computed again for its logits.
        """
        computed, tokens = self._computed[request.path], request.tokens
        same = 0
        while same < min(len(computed), len(tokens) - 1) and computed[same] == tokens[same]:
            same += 1
        if same < len(computed):
            self._cache.trim(request.path, same)
            self._computed[request.path] = computed[:same]

    def drafted(self, path: int, proposed: list[int]) -> list[int]:
        return proposed

    def outcomes(self, verified: Verified) -> tuple[int, Verified]:
        return sum(drafted for drafted, _ in verified), verified

    def fork(self, path: int, children: Sequence[int]) -> None:
        self._cache.fork(path, children)
        computed = self._computed.pop(path)
        self._computed |= {child: computed for child in children}  # never changed in place

    def release(self, path: int) -> None:
        self._cache.release(path)
        del self._computed[path]


def check_same_vocabulary(draft: LanguageModel, target: LanguageModel) -> None:
    """Check that a token id means the same text to both models; done once for each pair."""
    if draft in (known := _SAME_VOCABULARY.setdefault(target, WeakSet())):
        return
    size, other = target.card.vocab_size, draft.card.vocab_size
    differs = next(
        (token for token in range(min(size, other)) if draft.text(token) != target.text(token)),
        None,
    )
    if size != other or differs is not None:
        what = f"{other} tokens instead of {size}" if size != other else f"another token {differs}"
        raise ModelError(
            f"the draft model {draft.card.name} has {what}; it must have the same vocabulary as "
            f"{target.card.name}"
        )
    known.add(draft)
