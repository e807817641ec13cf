"""Logits processors: they change the scores of a path, depending on its tokens.

As in `generate` of transformers, they come before temperature and filters: first the built-in ones
against repetition, then custom ones. Each sees only one path with its prompt, so the weights are
unbiased for the distribution that results.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from eab.branching.own import Processor, plain_name
from eab.config import BranchingConfig
from eab.errors import ConfigError


def penalties(config: BranchingConfig) -> tuple[Processor, ...]:
    """The processors that the settings ask for."""
    made: list[Processor] = []
    if config.repetition_penalty != 1.0:
        made.append(partial(_penalize_repetition, penalty=config.repetition_penalty))
    if config.no_repeat_ngram_size:
        made.append(partial(_forbid_repeated, size=config.no_repeat_ngram_size))
    return tuple(made)


def processed(
    processors: Sequence[Processor], logits: Tensor, texts: Sequence[Sequence[int]]
) -> Tensor:
    """The processed scores after these texts, (P, V). Each row is processed alone, so the result
    for a path does not depend on the others.

    Raises:
        ConfigError: A processor did not return scores of the right shape.
    """
    exact = logits.dtype == torch.float64
    scores = logits.clone() if exact else logits.to(torch.float32, copy=True)
    for row, tokens in zip(scores.split(1), texts, strict=True):
        ids, made = torch.tensor([tokens], device=logits.device), row
        for processor in processors:
            made = _checked(processor, processor(ids, made), row)
        if made is not row:
            row.copy_(made)
    return scores


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


def _forbid_repeated(ids: Tensor, scores: Tensor, size: int) -> Tensor:
    """Forbid, in place, the tokens that would repeat `size` consecutive tokens of the text. No list
    of them is made, so there is no wait for CUDA.
    """
    following = ids[:, size - 1 :]
    if not following.shape[1]:
        return scores
    last = ids[:, ids.shape[1] - size + 1 :]
    same = (ids[0].unfold(0, size - 1, 1)[: following.shape[1]] == last).all(dim=-1)
    limit = torch.zeros_like(following, dtype=scores.dtype).masked_fill(same, -torch.inf)
    limit = limit.masked_fill(~same, torch.inf)
    return scores.scatter_reduce_(1, following, limit, "amin")
