"""The speculation of one run: a drafter, and the rule that sets how many tokens it drafts.

That is a fixed number, or the number that pays off on this machine in this run.

A pass of T tokens takes a + b T seconds. One more draft token costs b + d: one more token in the
pass, and the drafter's time for it. If the token is accepted, b is recovered, because that token
need not be computed again, and w passes are saved. For a single path w = 1. In a tree, a step ends
only when all paths have reached it, so w is about 1 / P for P paths, or less; w P is estimated. The
j-th draft token is accepted with probability alpha^j. So draft as long as alpha^j (b + w a) > b +
d, with a, b, d, w and alpha estimated from the latest passes of this run. Leviathan et al. (2023,
theorem 3.8) give the same rule for w = 1 and b = 0, where a longer pass costs nothing.

Where drafting does not pay off, a single draft token is tried from time to time, because the text
may have changed. Such trials cost at most the share TRIAL_SHARE of the run's time.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from eab.config import MAX_DRAFT, BranchingConfig
from eab.engine.branching.policy import Leaf, Policy
from eab.engine.branching.sampling import Predictions
from eab.engine.caches.base import KVCache
from eab.engine.caches.server import ServerCache
from eab.engine.models.base import LanguageModel
from eab.engine.models.machine import is_out_of_memory
from eab.engine.speculation.drafter import (
    Drafter,
    DraftModel,
    DraftRequest,
    NgramLookup,
    RunAhead,
    Verified,
    check_same_vocabulary,
)
from eab.errors import ConfigError, MemoryLimitError
from eab.run.events import Speculated

if TYPE_CHECKING:
    from eab.engine.paths import Paths

MIN_GAIN: Final = 1.2  # times the cost
SETTLING_PASSES: Final = 8  # a draft model must first compute the whole text
INITIAL_DRAFT_COST: Final = 0.2  # passes per draft token, until this run has been measured
DECAY: Final = 0.93  # factor per pass for the weight of past observations
TRIAL_SHARE: Final = 0.01  # of the run's time
MIN_VARIANCE: Final = 0.05  # of the pass sizes (tokens squared), to fit the cost of a token
MIN_TOKEN_COST: Final = 0.01  # of a mean pass, so that noise cannot make tokens free


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """The outcome of a forward pass."""

    # Tokens that went through the model; 0 if earlier answers of a server sufficed
    tokens: int
    seconds: float  # time of the pass and of verifying its draft tokens
    draft_seconds: float  # time of the drafter before the pass
    drafted: int  # draft tokens in the pass
    asked: bool  # whether the drafter was asked
    # For each path whose draft tokens are verified now: the number drafted and the number accepted.
    # A draft token at a possible fork cannot be verified, and costs as much as a rejected one (but
    # see eab.engine.speculation.drafter).
    drafts: Sequence[tuple[int, int]]
    paths: int  # paths in the pass
    steps: int  # steps decided after the pass


class DraftLength(Protocol):
    """Chooses the number of draft tokens before each pass, and observes the outcome."""

    def choose(self) -> int:
        """The maximum number of draft tokens per path in the next pass."""
        ...

    def observe(self, outcome: PassOutcome) -> None:
        """Record what the pass did."""
        ...


class FixedLength:
    """Always the same number."""

    def __init__(self, length: int) -> None:
        self._length = length

    def choose(self) -> int:
        return self._length

    def observe(self, outcome: PassOutcome) -> None:
        pass


class AdaptiveLength:
    """The number that pays off. It at most doubles from one pass to the next, and never changes the
    tokens.

    A `draft_model` must compute the text first. So drafting with it starts only after the run has
    proved not to be short, and its cost per token is first assumed to be a fraction of a pass.
    """

    def __init__(self, draft_model: bool = False) -> None:
        self._settling = SETTLING_PASSES if draft_model else 0  # passes left to wait
        self._initial_draft_cost = INITIAL_DRAFT_COST if draft_model else 0.0
        self._pass_seconds = _LinearFit()
        self._paths, self._length = 1, 0  # of the latest pass
        # Decaying counts. The first two start as if a few tokens had been drafted.
        self._accepted = 2.0  # draft tokens
        self._rejected = 1.0  # paths with a rejected draft token
        self._saved = 0.0  # passes, each multiplied by its number of paths
        self._drafted = self._draft_seconds = 0.0
        self._trial_seconds = 0.0  # time that a trial may cost
        self._lost_seconds = 0.0  # cost of the latest draft tokens; 0 before the first

    def choose(self) -> int:
        if self._settling > 0:
            self._settling -= 1
            return 0
        length = self._best()
        if not length and self._trial_seconds > (self._lost_seconds or self._pass_seconds.mean):
            length, self._trial_seconds = 1, 0.0
        self._length = min(length, max(1, 2 * self._length))
        return self._length

    def _best(self) -> int:
        """The largest length that pays off, by the rule at the top of this module.

        The estimates of w and d start as if two tokens had been drafted.
        """
        alpha = self._accepted / (self._accepted + self._rejected)
        saved_per_token = min(1.0, (self._saved + 2) / ((self._accepted + 2) * self._paths))
        initial_seconds = 2 * self._initial_draft_cost * self._pass_seconds.mean
        draft_cost = (self._draft_seconds + initial_seconds) / (self._drafted + 2)
        gain = self._pass_seconds.slope + saved_per_token * self._pass_seconds.start
        cost = self._pass_seconds.slope + draft_cost
        length = 0
        while length < MAX_DRAFT and alpha ** (length + 1) * gain > MIN_GAIN * cost:
            length += 1
        return length

    def observe(self, outcome: PassOutcome) -> None:
        self._paths = outcome.paths
        if outcome.tokens:
            self._pass_seconds.add(outcome.tokens, outcome.seconds)
            self._trial_seconds += TRIAL_SHARE * outcome.seconds
        if not (outcome.asked or outcome.drafts):
            return
        accepted = sum(count for _, count in outcome.drafts)
        rejected = sum(accepted < drafted for drafted, accepted in outcome.drafts)
        saved = outcome.steps - bool(outcome.tokens)
        self._accepted = DECAY * self._accepted + accepted
        self._rejected = DECAY * self._rejected + rejected
        self._saved = DECAY * self._saved + saved * outcome.paths
        self._drafted = DECAY * self._drafted + outcome.drafted
        self._draft_seconds = DECAY * self._draft_seconds + outcome.draft_seconds
        slope, start = self._pass_seconds.slope, self._pass_seconds.start
        if outcome.asked:
            self._lost_seconds = outcome.draft_seconds + slope * outcome.drafted
        self._lost_seconds = max(0.0, self._lost_seconds - slope * accepted - saved * start)


class _LinearFit:
    """Fits the seconds of a pass as start + slope * tokens, by weighted least squares."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0  # decaying sums
        self._slope = 0.0

    def add(self, x: float, y: float) -> None:
        """Add a pass of `x` tokens that took `y` seconds."""
        self._n = DECAY * self._n + 1
        self._x = DECAY * self._x + x
        self._y = DECAY * self._y + y
        self._xx = DECAY * self._xx + x * x
        self._xy = DECAY * self._xy + x * y
        spread = self._n * self._xx - self._x * self._x
        if spread > MIN_VARIANCE * self._n * self._n:  # otherwise keep the earlier slope
            self._slope = (self._n * self._xy - self._x * self._y) / spread

    @property
    def mean(self) -> float:
        """The mean seconds of a pass."""
        return self._y / self._n if self._n else 0.0

    @property
    def slope(self) -> float:
        """Seconds per token, at least MIN_TOKEN_COST of the mean."""
        return max(self._slope, MIN_TOKEN_COST * self.mean)

    @property
    def start(self) -> float:
        """Seconds of a pass with no tokens, at least 0."""
        return max(0.0, self.mean - self.slope * self._x / self._n) if self._n else 0.0


class Speculator:
    """Calls the drafter before each pass, and reports the outcome to the length rule."""

    def __init__(self, drafter: Drafter, length: DraftLength, stop_ids: frozenset[int]) -> None:
        self.drafter = drafter
        self.draft_seconds = 0.0
        self._length, self._stop_ids = length, stop_ids
        self._asked = False  # whether the drafter was asked before the current pass
        self._out_of_memory = False

    def propose(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """Draft tokens for each request, never including one that ends the text."""
        start, limit = time.perf_counter(), self._length.choose()
        drafts: list[list[int]] = [[] for _ in requests]
        self._asked = limit > 0 and not self._out_of_memory
        if self._asked:
            limited = [replace(request, limit=min(limit, request.limit)) for request in requests]
            try:
                drafts = [self._before_stop(draft) for draft in self.drafter.propose(limited)]
            except (MemoryLimitError, MemoryError, RuntimeError) as error:
                if not isinstance(error, MemoryLimitError) and not is_out_of_memory(error):
                    raise
                self._out_of_memory = True  # the run continues without speculation
        self.draft_seconds = time.perf_counter() - start
        return drafts

    def drafted(self, path: int, proposed: list[int]) -> list[int]:
        """The draft tokens that the pass verifies; `proposed` is what `propose` returned."""
        return self._before_stop(self.drafter.drafted(path, proposed))

    def observe(
        self, tokens: int, seconds: float, verified: Verified, paths: int, steps: int
    ) -> None:
        """Record what the pass with the latest draft tokens did (see `PassOutcome`)."""
        drafted, drafts = self.drafter.outcomes(verified)
        self._length.observe(
            PassOutcome(
                tokens, seconds, self.draft_seconds, drafted, self._asked, drafts, paths, steps
            )
        )

    def _before_stop(self, draft: list[int]) -> list[int]:
        return list(takewhile(lambda token: token not in self._stop_ids, draft))


def make_speculator(
    config: BranchingConfig,
    target: LanguageModel,
    draft: LanguageModel | None,
    policy: Policy,
    cache: KVCache,
) -> Speculator | None:
    """The speculator that the settings ask for; None for plain decoding.

    Args:
        policy: The policy of the run; a draft model drafts what it would choose.

    Raises:
        ConfigError: The drafter is `model` without a draft model, or `run-ahead` without a model on
            a server.
        ModelError: The draft model has another vocabulary.
    """
    drafter: Drafter
    match config.drafter:
        case "none":
            return None
        case "model":
            if draft is None:
                raise ConfigError(
                    "drafter is 'model' but no draft model is given; name one, or choose a lookup"
                )
            check_same_vocabulary(draft, target)
            drafter = DraftModel(draft, config, policy)
        case "prompt-lookup" | "sibling-lookup":
            drafter = NgramLookup(siblings=config.drafter == "sibling-lookup")
        case "run-ahead":
            if not isinstance(cache, ServerCache):
                raise ConfigError(
                    "drafter is 'run-ahead', which requires a model on a server; choose a lookup"
                )
            drafter = RunAhead(cache)
        case _:
            assert_never(config.drafter)
    length: DraftLength = AdaptiveLength(draft_model=config.drafter == "model")
    if config.draft_length:
        length = FixedLength(config.draft_length)
    return Speculator(drafter, length, target.stop_ids)


class Drafting:
    """Requests draft tokens before a forward pass, and verifies them against its predictions; in
    between, `paths.lookahead` holds them. Without a drafter there is nothing to verify: the paths
    only take over the predictions of the pass.
    """

    def __init__(
        self,
        model: LanguageModel,
        paths: "Paths",
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
