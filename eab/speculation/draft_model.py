"""Guesses by a smaller model with a tree cache of its own, for all paths in the same forward
passes.

A guess uses the random number that the target will use at that step. So where both models agree the
guess is right, whatever the entropy, and a run with drafts has the same tokens as one without.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor

from eab.branching.policies import Policy
from eab.branching.sampling import Predictions
from eab.caches.growth import auto_growth_rule
from eab.caches.tree import TreeCache
from eab.config import AUTO, BranchingConfig
from eab.errors import ModelError
from eab.models.base import LanguageModel
from eab.speculation.drafter import DraftRequest

CHUNK = 256  # tokens of a text that it reads at once
_AGREE: Final[WeakKeyDictionary[LanguageModel, WeakSet[LanguageModel]]] = (
    WeakKeyDictionary()
)  # target -> drafts


class DraftModel:
    """See Drafter. policy: what the target's run is decided by; a guess is what it would take from
    this model.
    """

    def __init__(self, model: LanguageModel, config: BranchingConfig, policy: Policy) -> None:
        self._model, self._config, self._policy = model, config, policy
        ahead = auto_growth_rule(None) if config.r == AUTO else config.r
        self._cache = TreeCache(model.kv_shape, ahead, config.kv_limit_mib * 2**20)
        self._read: dict[int, list[int]] = {0: []}  # the tokens of each path in the cache

    def propose(self, contexts: Sequence[DraftRequest]) -> list[list[int]]:
        """See Drafter.propose. A path's guesses end where this model hesitates: there the target
        may fork.
        """
        guesses: dict[int, list[int]] = {context.path: [] for context in contexts}
        asking = [context for context in contexts if context.most > 0]
        self._cache.reserve(
            0, self._config.max_new_tokens - min((one.step for one in contexts), default=0) + 1
        )
        for context in asking:
            self._forget_wrong(context)
        while asking:
            predictions = Predictions(self._next(asking, guesses), self._config)
            draws = [
                (context.stream_key, context.step + len(guesses[context.path]))
                for context in asking
            ]
            sure = [
                (context, token)
                for context, token in zip(
                    asking, self._policy.forced_tokens(predictions, draws), strict=True
                )
                if token is not None
            ]
            for context, token in sure:
                guesses[context.path].append(token)
            asking = [context for context, _ in sure if len(guesses[context.path]) < context.most]
        return list(guesses.values())

    def _next(self, contexts: Sequence[DraftRequest], guesses: dict[int, list[int]]) -> Tensor:
        """Read what is new of each text and of its guesses -> logits (P, V) of what follows."""
        new = {
            context.path: [*context.text, *guesses[context.path]][len(self._read[context.path]) :]
            for context in contexts
        }
        while behind := {
            path: tokens[:CHUNK] for path, tokens in new.items() if len(tokens) > CHUNK
        }:
            self._forward(behind)
            new = {path: tokens[len(behind.get(path, ())) :] for path, tokens in new.items()}
        return self._forward(new)

    def _forward(self, new: Mapping[int, Sequence[int]]) -> Tensor:
        """Read these tokens of these paths -> logits (P, V) after the last of each."""
        logits = self._model.forward([self._cache.prepare([*new], [*new.values()])])
        self._read |= {path: [*self._read[path], *tokens] for path, tokens in new.items()}
        return logits

    def _forget_wrong(self, context: DraftRequest) -> None:
        """Drop what it read that did not come to pass; at least the last token is read again, for
        its logits.
        """
        read, text = self._read[context.path], context.text
        right = 0
        while right < min(len(read), len(text) - 1) and read[right] == text[right]:
            right += 1
        if right < len(read):
            self._cache.trim(context.path, right)
            self._read[context.path] = read[:right]

    def fork(self, path: int, children: Sequence[int]) -> None:
        """See Drafter.fork."""
        self._cache.fork(path, children)
        read = self._read.pop(path)
        self._read |= {child: read for child in children}  # never changed in place

    def release(self, path: int) -> None:
        """See Drafter.release."""
        self._cache.release(path)
        del self._read[path]


def check_same_vocabulary(draft: LanguageModel, target: LanguageModel) -> None:
    """ModelError unless a token id means the same text to both models; looked at once for each
    pair.
    """
    if draft in (agreeing := _AGREE.setdefault(target, WeakSet())):
        return
    size, other = target.card.vocab_size, draft.card.vocab_size
    differs = next(
        (token for token in range(min(size, other)) if draft.text(token) != target.text(token)),
        None,
    )
    if size != other or differs is not None:
        where = f"{other} tokens instead of {size}" if size != other else f"another token {differs}"
        raise ModelError(
            f"the draft model {draft.card.name} has {where}; it must have the vocabulary of {target.card.name}"
        )
    agreeing.add(draft)
