"""What a forward pass brings to the attention of every layer, whatever the model's own code passes
on.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from eab.caches.base import ForwardBatch
from eab.caches.shared_prefix import SegmentReaders, readers_of_segments

_running: ContextVar[Sequence[ForwardBatch] | None] = ContextVar("running", default=None)
_readers: ContextVar[Sequence[SegmentReaders]] = ContextVar("readers", default=())


@contextmanager
def running(batches: Sequence[ForwardBatch]) -> Iterator[None]:
    """Within it, attention serves these batches."""
    token, readers = _running.set(batches), _readers.set(readers_of_segments(batches))
    try:
        yield
    finally:
        _running.reset(token)
        _readers.reset(readers)


def running_batches() -> Sequence[ForwardBatch] | None:
    """The batches of this forward pass; None outside this project."""
    return _running.get()


def segment_readers() -> Sequence[SegmentReaders]:
    """What the batches of this forward pass read of the prefix cache."""
    return _readers.get()


def use_attention(model: PreTrainedModel, name: str) -> None:
    """Let a model use an attention function; one that has no choice of them stays as it is."""
    if model._can_set_attn_implementation():
        model.set_attn_implementation(name)


def follow_layers(model: PreTrainedModel) -> None:
    """Attention that several layers share is told its layer at each call (Zamba): let it say so to
    its attention function, as the attention of one layer does.
    """

    def note(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(layer := kwargs.get("layer_idx"), int):
            module.layer_idx = layer  # type: ignore[assignment]

    for module in model.modules():
        told = "layer_idx" in inspect.signature(module.forward).parameters
        if told and hasattr(module, "layer_idx"):
            module.register_forward_pre_hook(note, with_kwargs=True)


class PositionsAsPast:
    """Stands in for transformers' cache in models that count positions from what it holds, and not
    from the positions that they are given.
    """

    is_compileable = False

    def __init__(self, positions: Tensor) -> None:
        counted = torch.arange(len(positions), device=positions.device)
        self._before = positions - counted

    def get_seq_length(self, layer_idx: int = 0) -> Tensor:
        """For each token, so that counting on from it gives its position."""
        return self._before

    def update(
        self, key: Tensor, value: Tensor, layer_idx: int, *_: object
    ) -> tuple[Tensor, Tensor]:
        """Our caches store K and V later, in the attention function."""
        return key, value
