"""The event that records what the decisions of a step saw."""

from collections.abc import Sequence
from typing import Final

from eab.branching.entropy_bounds import entropy_bounds
from eab.branching.policy import Leaf
from eab.branching.sampling import CANDIDATES, Predictions
from eab.config import BranchingConfig
from eab.events import Candidate, EntropyBounds, PathPrediction, Predicted
from eab.models.base import LanguageModel

MIN_RECORDED_PROBABILITY: Final = 0.0005  # of a candidate; rarer ones would only enlarge run files


def predicted(
    model: LanguageModel,
    config: BranchingConfig,
    leaves: Sequence[Leaf],
    predictions: Predictions,
    step: int,
) -> Predicted:
    """The predictions of all live paths."""
    on_server = model.kv_shape.blocks is not None
    bounds = _bounds(model, config, predictions) if on_server else [None] * len(leaves)
    rows = zip(leaves, predictions.entropies, bounds, strict=True)
    seen = [
        PathPrediction(leaf.path, entropy, _candidates(model, predictions, index), whole)
        for index, (leaf, entropy, whole) in enumerate(rows)
    ]
    return Predicted(step, tuple(seen))


def _candidates(
    model: LanguageModel, predictions: Predictions, index: int
) -> tuple[Candidate, ...]:
    probabilities = [
        round(probability, 6)
        for probability in predictions.top_probabilities[index][:CANDIDATES]
        if probability >= MIN_RECORDED_PROBABILITY
    ]
    tokens = predictions.top_tokens[index][: len(probabilities)]
    return tuple(map(Candidate, tokens, map(model.text, tokens), probabilities))


def _bounds(
    model: LanguageModel, config: BranchingConfig, predictions: Predictions
) -> list[EntropyBounds | None]:
    """Bounds for the model's own distribution; the logits of a model on a server are ln p."""
    log_probs = predictions.best_logits(config.top_k, config.temperature)
    bounds = entropy_bounds(log_probs, model.card.vocab_size)
    return [EntropyBounds(*row) for row in bounds.tolist()]
