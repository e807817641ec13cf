"""transformers' cache of a hybrid model without K and V: it keeps the states, and a cache of this
project has the rows.
"""

from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor
from transformers.cache_utils import DynamicCache

_SEEN: Final = "tokens_seen"  # attribute with the number of tokens in the text


def without_rows(cache: DynamicCache, layers: Sequence[int]) -> DynamicCache:
    """Stop these layers of the cache from storing K and V; they keep any states."""
    kind = cache.layer_class_to_replicate
    if kind is not None and not cache.layers:  # layers are created on first use
        cache.layer_class_to_replicate = _without_rows(kind)
        return cache
    for index in layers:
        layer = cache.layers[index]
        layer.__class__ = _without_rows(type(layer))
    return cache


def _without_rows(kind: type) -> type:
    """A subclass of this layer class that only counts the tokens."""
    methods = {
        "update": _update,
        "get_seq_length": _seen,
        "get_mask_sizes": _only_new,
        "__module__": kind.__module__,
    }
    return type(f"{kind.__name__}WithoutRows", (kind,), methods)


def _update(layer: Any, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    """Count the tokens; our attention function stores K and V."""
    vars(layer)[_SEEN] = _seen(layer) + key.shape[-2]
    return key, value


def _seen(layer: Any) -> int:
    """The number of tokens, from which families derive positions."""
    return int(vars(layer).get(_SEEN, 0))


def _only_new(_: Any, query_length: int) -> tuple[int, int]:
    """Sizes for transformers' mask; our caches use masks of their own."""
    return query_length, 0
