"""The draft tokens of one run: proposed before a forward pass, verified against its predictions.

Without a drafter there is nothing to verify: the paths only take over the predictions of the pass.
"""

from collections.abc import Sequence

from eab.config import MAX_DRAFT
from eab.engine.branching.policy import Leaf, Policy
from eab.engine.branching.sampling import Predictions
from eab.engine.caches.base import KVCache
from eab.engine.models.base import LanguageModel
from eab.engine.paths import Paths
from eab.engine.speculation.drafter import DraftRequest
from eab.engine.speculation.speculator import Speculator
from eab.run.events import Speculated


class Drafting:
    """Requests and verifies draft tokens; in between, `paths.lookahead` holds them."""

    def __init__(
        self,
        model: LanguageModel,
        paths: Paths,
        cache: KVCache,
        policy: Policy,
        speculator: Speculator | None,
    ) -> None:
        self._model, self._paths, self._cache, self._policy = model, paths, cache, policy
        self._speculator = speculator

    @property
    def seconds(self) -> float:
        """How long the drafter took for the current pass."""
        return 0.0 if self._speculator is None else self._speculator.draft_seconds

    def most(self, paths: int) -> int:
        """The most draft tokens that this many paths can have in a pass."""
        return 0 if self._speculator is None else MAX_DRAFT * paths

    def propose(self, leaves: Sequence[Leaf], longest: int, rope_switch: int) -> None:
        """Ask the drafter for tokens after each path.

        Args:
            longest: The most new tokens that a path may have.
            rope_switch: The most tokens that a text may have in this pass; 0: no limit.
        """
        if self._speculator is None:
            return
        requests = []
        for leaf in leaves:
            tokens = self._paths.lookahead[leaf.path].tokens
            step = len(tokens) - self._paths.prompt_length
            limit = longest - 1 - step
            if rope_switch:
                limit = min(limit, rope_switch - len(tokens))
            requests.append(DraftRequest(leaf.path, leaf.stream_key, tokens, step, limit))
        for leaf, drafted in zip(leaves, self._speculator.propose(requests), strict=True):
            self._paths.lookahead[leaf.path].draft_tokens = drafted

    def drop(self, leaves: Sequence[Leaf]) -> None:
        """Discard the draft tokens, so that this pass verifies none."""
        for state in self._paths.states(leaves):
            state.draft_tokens = []

    def verify(self, leaves: Sequence[Leaf], predictions: Predictions) -> list[Speculated]:
        """Give each path its predictions, and remove rejected draft tokens from the cache."""
        states = self._paths.states(leaves)
        if not any(state.draft_tokens for state in states):
            for index, state in enumerate(states):
                state.predictions.append((predictions, index))
            return []
        at = [(leaf.stream_key, step) for leaf, step in self._paths.logits_rows(leaves)]
        forced = self._policy.forced_tokens(predictions, at)
        speculated: list[Speculated] = []
        first = 0
        for leaf, state in zip(leaves, states, strict=True):
            step, proposed = len(state.tokens) - self._paths.prompt_length, len(state.draft_tokens)
            after = first + proposed + 1
            if proposed and self._speculator is not None:
                state.draft_tokens = self._speculator.drafted(leaf.path, state.draft_tokens)
            draft = tuple(state.draft_tokens)
            accepted, verified = state.verify(predictions, first, forced[first:after])
            first = after
            if accepted < proposed:
                self._cache.trim(leaf.path, state.num_computed)
            if draft:
                texts = tuple(map(self._model.text, draft))
                speculated.append(Speculated(step, leaf.path, draft, texts, accepted, verified))
        return speculated

    def observe(
        self,
        tokens: int,
        seconds: float,
        speculated: Sequence[Speculated],
        paths: int,
        steps: int,
    ) -> None:
        """Tell the speculator what the pass did (see `Speculator.observe`)."""
        if self._speculator is not None:
            drafts = [(len(draft.draft_tokens), draft.accepted) for draft in speculated]
            self._speculator.observe(tokens, seconds, drafts, paths, steps)
