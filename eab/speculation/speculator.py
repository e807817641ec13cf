"""The speculation of one run: a drafter, and the rule that sets how many tokens it drafts."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import assert_never

from eab.branching.policy import Policy
from eab.caches.base import KVCache
from eab.caches.server import ServerCache
from eab.config import BranchingConfig
from eab.errors import ConfigError, MemoryLimitError
from eab.models.base import LanguageModel
from eab.models.machine import is_out_of_memory
from eab.speculation.draft_length import AdaptiveLength, DraftLength, FixedLength, PassOutcome
from eab.speculation.draft_model import DraftModel, check_same_vocabulary
from eab.speculation.drafter import Drafter, DraftRequest, Verified
from eab.speculation.ngram_lookup import NgramLookup
from eab.speculation.run_ahead import RunAhead


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
