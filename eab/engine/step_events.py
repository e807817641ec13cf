"""The events of one decided step: what its decisions saw, what happened to the paths, and whether
the run then ends before all its texts have.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor

from eab.analysis.answers import group_answers
from eab.analysis.label_rules import recorded
from eab.analysis.labels import labels_of
from eab.config import BranchingConfig
from eab.engine.branching.policy import Leaf
from eab.engine.branching.sampling import CANDIDATES, Predictions
from eab.engine.models.base import LanguageModel
from eab.run import RunState
from eab.run.events import (
    Candidate,
    DroppedTokens,
    EndReason,
    EntropyBounds,
    Event,
    Forked,
    LimitActed,
    NewToken,
    NewWeight,
    PathFinished,
    PathPrediction,
    Predicted,
    Pruned,
    Reweighted,
    RunStarted,
    TokensAppended,
)


@dataclass(slots=True)
class StepEvents:
    """What happens to the paths in a step, collected path by path."""

    step: int
    dropped: list[DroppedTokens] = field(default_factory=list)
    pruned: list[int] = field(default_factory=list)
    forked: list[Forked] = field(default_factory=list)
    tokens: list[NewToken] = field(default_factory=list)
    weights: list[NewWeight] = field(default_factory=list)
    finished: list[PathFinished] = field(default_factory=list)

    def events(self) -> list[Event]:
        """The events in the order that `eab.run.events` guarantees: a path is created before it
        grows, and grows before it ends.
        """
        step = self.step
        return [
            *([LimitActed(step, tuple(self.dropped))] if self.dropped else []),
            *(Pruned(step, path) for path in self.pruned),
            *self.forked,
            *([TokensAppended(step, tuple(self.tokens))] if self.tokens else []),
            *([Reweighted(step, tuple(self.weights))] if self.weights else []),
            *self.finished,
        ]


MIN_RECORDED_PROBABILITY: Final = 0.0005  # of a candidate; rarer ones would only enlarge run files


def predicted(
    model: LanguageModel,
    config: BranchingConfig,
    leaves: Sequence[Leaf],
    predictions: Predictions,
) -> dict[int, Predicted]:
    """The predictions of these paths, by step."""
    on_server = model.kv_shape.blocks is not None
    bounds = _bounds(model, config, predictions) if on_server else [None] * len(leaves)
    rows = zip(
        leaves, predictions.entropies, candidates_of(model, predictions), bounds, strict=True
    )
    seen: dict[int, list[PathPrediction]] = {}
    for leaf, entropy, candidates, whole in rows:
        of_step = seen.setdefault(leaf.tokens, [])
        of_step.append(PathPrediction(leaf.path, entropy, candidates, whole))
    return {step: Predicted(step, tuple(of_step)) for step, of_step in seen.items()}


def candidates_of(model: LanguageModel, predictions: Predictions) -> list[tuple[Candidate, ...]]:
    """The most likely tokens of each prediction, as runs record them."""
    listed = np.array([row[:CANDIDATES] for row in predictions.top_probabilities])
    counts = (listed >= MIN_RECORDED_PROBABILITY).sum(axis=1)
    rows = zip(predictions.top_tokens, listed.round(6).tolist(), counts.tolist(), strict=True)
    return [
        tuple(map(Candidate, tokens[:count], map(model.text, tokens), probabilities))
        for tokens, probabilities, count in rows
    ]


def _bounds(
    model: LanguageModel, config: BranchingConfig, predictions: Predictions
) -> list[EntropyBounds | None]:
    """Bounds for the model's own distribution; the logits of a model on a server are ln p."""
    log_probs = predictions.best_logits(config.top_k, config.temperature)
    bounds = entropy_bounds(log_probs, model.card.vocab_size)
    return [EntropyBounds(*row) for row in bounds.tolist()]


def entropy_bounds(log_probs: Tensor, vocab_size: int) -> Tensor:
    """The smallest and largest entropy that each distribution can have, (P, 2) float64, in nats.

    p_1 >= ... >= p_K of V tokens are known. The other V - K tokens have the probability m = 1 - sum
    p together, and none of them is more likely than p_K. The entropy is smallest if as few of them
    as possible share m: each has p_K, and one the remainder. It is largest if all are equally
    likely. Both cases are possible, so no narrower bounds are certain.

    Args:
        log_probs: ln p of the K most likely tokens of each distribution, (P, K), in any order;
            minus infinity where fewer are known.
        vocab_size: V.
    """
    logs = log_probs.double()
    probs = logs.exp()
    known = -torch.special.xlogy(probs, probs).sum(dim=-1)
    is_known = probs > 0
    unknown = vocab_size - is_known.sum(dim=-1)
    least = probs.masked_fill(~is_known, torch.inf).amin(dim=-1)  # p_K
    # Rounding must not make it negative, nor more than the other tokens can have.
    left = (1.0 - probs.sum(dim=-1)).clamp(min=0.0).minimum(unknown * least)
    whole = (left / least).floor()
    remainder = (left - whole * least).clamp(min=0.0)
    low = (
        known
        - whole * torch.special.xlogy(least, least)
        - torch.special.xlogy(remainder, remainder)
    )
    even = left / unknown.clamp(min=1)
    high = known - torch.special.xlogy(left, even)
    return torch.stack([low, torch.maximum(low, high)], dim=-1).clamp(min=0.0)


class Ending:
    """When a run ends before all its texts have: nothing that it has not seen can change its
    leading answer, enough is explored, or its token budget is spent.

    The answer is the first sentence of a text, or its label, if the settings name words as labels.
    The probability of every answer has certain bounds (`eab.analysis.answers`, `labels`), so the
    first two are certain, not statistical: an answer wins if no other one, seen or not, has an
    upper bound above its lower bound, and the bounds are 1 - `explored` apart. Live paths count as
    not seen, unless their answer is complete.
    """

    def __init__(self, started: RunStarted) -> None:
        self._config = started.config
        self._state = RunState(started) if started.config.stop_when != "ended" else None
        self._budget, self._tokens = started.config.most_tokens, 0

    def reason(self, events: Sequence[Event]) -> EndReason | None:
        """Why the run ends after these events, which follow those of the last call; or None."""
        predicted = [event for event in events if isinstance(event, Predicted)]
        self._tokens += sum(len(event.predictions) for event in predicted)
        if self._state is not None and (reason := self._by_answers(events)):
            return reason
        return "budget" if self._budget and self._tokens >= self._budget else None

    def _by_answers(self, events: Sequence[Event]) -> EndReason | None:
        assert self._state is not None
        for event in events:
            self._state.apply(event)
        winner, explored = self._known(self._state)
        if self._config.stop_when == "decided":
            return "decided" if winner is not None else None
        return "explored" if explored >= self._config.explored_goal else None

    def _known(self, run: RunState) -> tuple[object | None, float]:
        """What has won already, if anything has, and the probability of what is explored."""
        if self._config.label_words:
            labels = labels_of([run], recorded(run.labels))
            return labels.winner, 1.0 - labels.unexplored
        answers = group_answers(run, "sentence")
        return answers.winner, answers.explored
