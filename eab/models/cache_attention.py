"""Attention over the caches of this project, as a function for transformers.

It is registered with transformers' AttentionInterface, and looks up the batches of the current
forward pass (eab.models.running_pass). Their caches store the new K and V and compute attention.
Outside such a pass, the function is transformers' own, so the model stays usable.
"""

from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from eab.caches.shared_prefix import attend_with_prefixes
from eab.models.attention_calls import current_record
from eab.models.masks import cache_mask
from eab.models.plain_attention import plain_attention
from eab.models.running_pass import running_batches, segment_readers
from eab.models.stopping import stop_if_requested

ATTENTION: Final = "eab_cache"


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
    batches = running_batches()
    if batches is None:
        if (record := current_record()) is not None:
            record.add(module, query, key, value, attention_mask, kwargs)
        kwargs |= {"dropout": dropout, "scaling": scaling}
        return plain_attention(module, query, key, value, attention_mask, kwargs), None
    if batches[0].static_buffers is None:  # what CUDA graphs capture must not stop
        stop_if_requested()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    if readers := segment_readers():
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
