"""Logits processors: they change the scores of a path, depending on its tokens.

As in `generate` of transformers, they come before temperature and filters: first the built-in one
against repetition, then custom ones. Each sees only one path with its prompt, so the weights are
unbiased for the distribution that results.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from eab.config import BranchingConfig
from eab.engine.branching.own import Processor, plain_name
from eab.errors import ConfigError


def penalties(config: BranchingConfig) -> tuple[Processor, ...]:
    """The processors that the settings ask for."""
    if config.repetition_penalty == 1.0:
        return ()
    return (partial(_penalize_repetition, penalty=config.repetition_penalty),)


def processed(
    processors: Sequence[Processor], logits: Tensor, texts: Sequence[Sequence[int]]
) -> Tensor:
    """The processed scores after these texts, (P, V). Each row is processed alone, so the result
    for a path does not depend on the others.

    Raises:
        ConfigError: A processor did not return scores of the right shape, or none that is finite.
    """
    exact = logits.dtype == torch.float64
    scores = logits.clone() if exact else logits.to(torch.float32, copy=True)
    for row, tokens in zip(scores.split(1), texts, strict=True):
        ids, made = torch.tensor([tokens], device=logits.device), row
        for processor in processors:
            made = _checked(processor, processor(ids, made), row)
        if made is not row:
            row.copy_(made)
    largest = logits.amax(dim=-1).isfinite() & ~scores.amax(dim=-1).isfinite()
    if largest.any():
        at = int(largest.int().argmax())
        _blame(processors, logits[at : at + 1].to(scores.dtype, copy=True), texts[at])
    return scores


def _blame(processors: Sequence[Processor], row: Tensor, text: Sequence[int]) -> None:
    """Raise ConfigError for the processor that leaves no token of this row, (1, V), to draw."""
    ids = torch.tensor([text], device=row.device)
    for processor in processors:
        row = processor(ids, row).to(row.dtype)
        if not (largest := row.amax()).isfinite():
            scores = {-math.inf: "all scores to -inf", math.inf: "a score to +inf"}
            what = scores.get(float(largest), "a score to NaN")
            raise ConfigError(
                f"the logits processor {plain_name(processor)} sets {what} after "
                f"{len(text):,} tokens, so no token can be drawn; let it leave a finite score"
            )


def _checked(processor: Processor, given: Tensor, scores: Tensor) -> Tensor:
    shape = getattr(given, "shape", None)
    if shape != scores.shape:
        what = type(given).__name__ if shape is None else f"tensor of shape {tuple(shape)}"
        raise ConfigError(
            f"the logits processor {plain_name(processor)} returned a {what}; it must return "
            f"the scores as a tensor of shape {tuple(scores.shape)}"
        )
    return given


def _penalize_repetition(ids: Tensor, scores: Tensor, penalty: float) -> Tensor:
    """Lower the scores of tokens that occur in the text, in place (arXiv 1909.05858)."""
    seen = scores.gather(1, ids)
    return scores.scatter_(1, ids, torch.where(seen < 0, seen * penalty, seen / penalty))
