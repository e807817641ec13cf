"""Logits processors of transformers, for the paths of one run.

`generate` of transformers applies them in the same place: before temperature and filters.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from eab.branching.own import plain_name
from eab.engine.request import Processor, Request
from eab.errors import ConfigError
from eab.models.base import LanguageModel


def check_processors(model: LanguageModel, request: Request) -> None:
    """ConfigError if the run has logits processors, and they cannot be applied."""
    if not request.logits_processors:
        return
    drafter = request.config.drafter
    if drafter != "none":
        raise ConfigError(
            f"logits processors are given, and drafter is {drafter!r}, whose draft tokens they "
            "would not see; leave out one of them"
        )
    if model.kv_shape.blocks is not None:
        raise ConfigError(
            f"logits processors are given, but {model.card.name} runs on a server, which names "
            "only its most likely tokens; load the model on this machine"
        )


def processed(
    processors: Sequence[Processor], logits: Tensor, texts: Sequence[Sequence[int]]
) -> Tensor:
    """The scores of paths with these tokens, (P, V): each row by itself, so that what a processor
    makes of a path does not depend on the others.

    Raises:
        ConfigError: A processor gave no scores.
    """
    rows = []
    for row, tokens in zip(logits.split(1), texts, strict=True):
        ids = torch.tensor([tokens], device=logits.device)
        scores = row.clone() if row.dtype == torch.float64 else row.to(torch.float32, copy=True)
        for processor in processors:
            scores = _checked(processor, processor(ids, scores), scores)
        rows.append(scores)
    return torch.cat(rows)


def _checked(processor: Processor, given: Tensor, scores: Tensor) -> Tensor:
    shape = getattr(given, "shape", None)
    if shape != scores.shape:
        what = type(given).__name__ if shape is None else f"tensor of shape {tuple(shape)}"
        raise ConfigError(
            f"the logits processor {plain_name(processor)} gave a {what}; it must give the scores "
            f"as a tensor of shape {tuple(scores.shape)}"
        )
    return given
