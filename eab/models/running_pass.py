"""Passes the batches of a forward pass to the attention of every layer, whatever arguments the
model's own code passes on.
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
from eab.models.stopping import stop_if_requested

_running: ContextVar[Sequence[ForwardBatch] | None] = ContextVar("running", default=None)
_readers: ContextVar[Sequence[SegmentReaders]] = ContextVar("readers", default=())


@contextmanager
def running(batches: Sequence[ForwardBatch]) -> Iterator[None]:
    """Let attention serve these batches while in the block."""
    token, readers = _running.set(batches), _readers.set(readers_of_segments(batches))
    try:
        yield
    finally:
        _running.reset(token)
        _readers.reset(readers)


def running_batches() -> Sequence[ForwardBatch] | None:
    """The batches of this forward pass; None outside this project's passes."""
    return _running.get()


def segment_readers() -> Sequence[SegmentReaders]:
    """Which parts of the prefix cache the batches of this forward pass read."""
    return _readers.get()


def use_attention(model: PreTrainedModel, name: str) -> None:
    """Set the model's attention function; a model that cannot choose one stays as it is."""
    if model._can_set_attn_implementation():
        model.set_attn_implementation(name)


def follow_layers(model: PreTrainedModel) -> None:
    """Let attention that several layers share (Zamba) tell its attention function the current
    layer, as the attention of a single layer does. Such a module is told its layer at each call.
    """

    def note(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(layer := kwargs.get("layer_idx"), int):
            module.layer_idx = layer  # type: ignore[assignment]

    for module in model.modules():
        told = "layer_idx" in inspect.signature(module.forward).parameters
        if told and hasattr(module, "layer_idx"):
            module.register_forward_pre_hook(note, with_kwargs=True)


def stop_between_layers(model: PreTrainedModel) -> None:
    """Let passes stop before each layer (see eab.models.stopping)."""
    for layers in model.modules():
        for layer in layers if isinstance(layers, nn.ModuleList) else ():
            if _stop_before not in layer._forward_pre_hooks.values():
                layer.register_forward_pre_hook(_stop_before)


def _stop_before(module: nn.Module, args: object) -> None:
    stop_if_requested()


class PositionsAsPast:
    """Stands in for transformers' cache in models that derive positions from the length of the
    cache and not from the positions that they are given.
    """

    is_compileable = False

    def __init__(self, positions: Tensor) -> None:
        counted = torch.arange(len(positions), device=positions.device)
        self._before = positions - counted

    def get_seq_length(self, layer_idx: int = 0) -> Tensor:
        """A length for each token from which counting on gives the token's position."""
        return self._before

    def update(
        self, key: Tensor, value: Tensor, layer_idx: int, *_: object
    ) -> tuple[Tensor, Tensor]:
        """Our caches store K and V later, in the attention function."""
        return key, value
