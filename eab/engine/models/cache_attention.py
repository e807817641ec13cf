"""Attention over the caches of this project, as a function for transformers.

It is registered with transformers' AttentionInterface, and looks up the batches of the forward pass
that is running, whatever arguments the model's own code passes on. Their caches store the new K and
V and compute attention. Outside such a pass, the function is transformers' own, so the model stays
usable.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from eab.engine.caches.attention import (
    SegmentReaders,
    attend_with_prefixes,
    readers_of_segments,
)
from eab.engine.caches.base import ForwardBatch
from eab.engine.models.attention_calls import cache_mask, current_record
from eab.engine.models.machine import is_out_of_memory
from eab.engine.models.stopping import stop_if_requested
from eab.errors import ModelError

ATTENTION: Final = "eab_cache"
# The batches of the forward pass, and which parts of the prefix cache they read
_Running: TypeAlias = tuple[Sequence[ForwardBatch], Sequence[SegmentReaders]]
_running: ContextVar[_Running | None] = ContextVar("running", default=None)


@contextmanager
def running(batches: Sequence[ForwardBatch]) -> Iterator[None]:
    """Let attention serve these batches while in the block."""
    token = _running.set((batches, readers_of_segments(batches)))
    try:
        yield
    finally:
        _running.reset(token)


def use_attention(model: PreTrainedModel, name: str) -> None:
    """Set the model's attention function; a model that cannot choose one stays as it is."""
    if model._can_set_attn_implementation():
        model.set_attn_implementation(name)


@contextmanager
def our_attention(model: PreTrainedModel, refusal: str) -> Iterator[str]:
    """Give a model our attention function, and its own back if the block fails. Yields the name of
    its own. Any error but out of memory becomes a ModelError, which begins with `refusal`.
    """
    before = model.config._attn_implementation
    use_attention(model, ATTENTION)
    try:
        yield before
    except Exception as error:
        use_attention(model, before)
        if isinstance(error, ModelError) or is_out_of_memory(error):
            raise
        raise ModelError(f"{refusal}: {error}") from error


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
    """Let passes stop before each layer (see eab.engine.models.stopping)."""
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


def plain_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    arguments: dict[str, Any],
) -> Tensor:
    """The attention output, (1, T, H, D), by SDPA. If the model caps its scores or has sinks, which
    SDPA would refuse or ignore, the function in the model's own file is used.
    """
    if arguments.get("softcap") is None and arguments.get("s_aux") is None:
        out: Tensor = sdpa_attention_forward(module, query, key, value, mask, **arguments)[0]
        return out
    eager = sys.modules[type(module).__module__].eager_attention_forward
    if mask is None or mask.dtype == torch.bool:
        mask = _numbers(mask, query, key.shape[2])
    out = eager(module, query, key, value, mask, **arguments)[0]
    return out


def _numbers(mask: Tensor | None, query: Tensor, length: int) -> Tensor:
    """The mask as numbers to add to the scores; a causal mask if there is none."""
    new = query.shape[2]
    if mask is None:
        shape = torch.ones(new, length, dtype=torch.bool, device=query.device)
        mask = shape.tril(length - new)[None, None]
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(
        ~mask, torch.finfo(query.dtype).min
    )


def cache_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function for transformers.

    Args:
        query: (1, H, T, D). In a hybrid model, (B, H, T, D) for B texts of equal length.
        key, value: Those of the new tokens, (1, G, T, D) or (B, G, T, D).
        attention_mask: Used only outside this project's forward passes.
        scaling: Factor of the scores; by default 1 / sqrt(D).

    Returns:
        The attention output, (1, T, H, D) or (B, T, H, D), and no attention weights.
    """
    if (ours := _running.get()) is None:
        if (record := current_record()) is not None:
            record.add(module, query, key, value, attention_mask, kwargs)
        kwargs |= {"dropout": dropout, "scaling": scaling}
        return plain_attention(module, query, key, value, attention_mask, kwargs), None
    batches, readers = ours
    if batches[0].static_buffers is None:  # what CUDA graphs capture must not stop
        stop_if_requested()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    if readers:
        shared = attend_with_prefixes(batches, readers, layer, query, key, value, scale)
        return shared.contiguous(), None
    if len(batches) == len(query) == 1:
        together = batches[0].cache.attend(layer, query, key, value, scale)
        return together.contiguous(), None  # some families take a view of it
    lengths, texts = [len(batch.ids) for batch in batches], len(query)
    if texts > 1:  # texts in sequence, as in the cache
        parts = (query, key, value)
        query, key, value = (part.transpose(0, 1).flatten(1, 2)[None] for part in parts)
    tensors = (tensor.split(lengths, 2) for tensor in (query, key, value))
    of_runs = zip(batches, *tensors, strict=True)
    # Run by run: a single call would have to stack the K and V of all runs in every layer.
    outputs = [batch.cache.attend(layer, q, k, v, scale) for batch, q, k, v in of_runs]
    together = torch.cat(outputs, dim=1)
    return together.reshape(texts, -1, *together.shape[2:]).contiguous(), None


AttentionInterface.register(ATTENTION, cache_attention)
AttentionMaskInterface.register(ATTENTION, cache_mask)
