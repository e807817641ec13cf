"""The guesses of one run: who makes them, how many, and what became of them."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import torch

from eab.branching.policies import Policy
from eab.config import BranchingConfig
from eab.errors import ConfigError, MemoryLimitError
from eab.models.base import LanguageModel
from eab.speculation.draft_length import AdaptiveLength, DraftLength, FixedLength, PassOutcome
from eab.speculation.draft_model import DraftModel, check_same_vocabulary
from eab.speculation.drafter import Drafter, DraftRequest
from eab.speculation.ngram_lookup import NgramLookup


class Speculator:
    """See the modules of this package. stops: tokens that end a text; they are never guessed."""

    def __init__(self, drafter: Drafter, length: DraftLength, stops: frozenset[int]) -> None:
        self.drafter, self.length = drafter, length
        self.draft_seconds, self.asked = (
            0.0,
            False,
        )  # of the latest guesses; whether there were to be any
        self._out_of_memory = False
        self._stops = stops

    def propose(self, contexts: Sequence[DraftRequest]) -> list[list[int]]:
        """Guesses per context."""
        start, most = time.perf_counter(), self.length.most()
        guesses: list[list[int]] = [[] for _ in contexts]
        self.asked = bool(most) and not self._out_of_memory
        if self.asked:
            asked = [replace(context, most=min(most, context.most)) for context in contexts]
            try:
                guesses = [self._until_stop(guess) for guess in self.drafter.propose(asked)]
            except (MemoryLimitError, torch.OutOfMemoryError):  # the run goes on without guesses
                self._out_of_memory = True
        self.draft_seconds = time.perf_counter() - start
        return guesses

    def heard(
        self,
        tokens: int,
        seconds: float,
        verified: Sequence[tuple[int, int]],
        paths: int,
        steps: int,
    ) -> None:
        """What the pass with the latest guesses did; see eab.speculation.draft_length.PassOutcome."""
        self.length.heard(
            PassOutcome(tokens, seconds, self.draft_seconds, self.asked, verified, paths, steps)
        )

    def _until_stop(self, guess: list[int]) -> list[int]:
        end = next((place for place, token in enumerate(guess) if token in self._stops), len(guess))
        return guess[:end]


def make_speculator(
    config: BranchingConfig, target: LanguageModel, draft: LanguageModel | None, policy: Policy
) -> Speculator | None:
    """What the config asks for; None for plain decoding. ConfigError or ModelError if the draft
    model cannot serve.
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
        case _:
            assert_never(config.drafter)
    reads = config.drafter == "model"
    length = FixedLength(config.draft_length) if config.draft_length else AdaptiveLength(reads)
    return Speculator(drafter, length, target.stop_ids)
