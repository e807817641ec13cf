"""Models whose attention modules compute attention themselves, without transformers' interface.

They read K and V from transformers' cache object. We pass them a substitute that shows the rows of
our cache, and a mask of the rows that each token sees. A row is still written once, for all paths.
Attention then costs what the model's own code costs.

A hybrid model keeps only its states in transformers' cache; a cache of this project has its rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from eab.caches.base import ForwardBatch
from eab.caches.shape import RowShape
from eab.models.stopping import stop_if_requested

# Methods that build a distance bias from the length of the text alone (ALiBi)
_BIAS_METHODS: Final = ("build_alibi_tensor", "build_mpt_alibi_tensor")
_row_positions: ContextVar[Tensor | None] = ContextVar("row_positions", default=None)


class ShowsRows(Protocol):
    """Shows the rows of a prepared batch to a model that computes attention itself."""

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store K and V of the prepared batch, (1, G, T, D) each, and return those of all rows,
        (G, C, D) each.
        """
        ...

    def visible_rows(self) -> tuple[Tensor, Tensor]:
        """Which of these rows each token of the prepared batch sees, (T, C) bool, and the position
        of each row in its path, (C,).
        """
        ...


class RowsAsPast:
    """Stands in for transformers' cache in one forward pass."""

    is_compileable = False

    def __init__(self, cache: ShowsRows) -> None:
        self._cache = cache

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Always 0, so that a model does not add to the positions that it is given."""
        return 0

    def update(
        self, key: Tensor, value: Tensor, layer_idx: int, *_: object
    ) -> tuple[Tensor, Tensor]:
        """Store K and V of the new tokens; return those of all rows."""
        stop_if_requested()
        keys, values = self._cache.update(layer_idx, key, value)
        return keys[None], values[None]


class PastRecord(RowsAsPast):
    """Shows only the new K and V, and records their sizes."""

    def __init__(self) -> None:
        self.layers: list[int] = []
        self.rows: list[RowShape] = []

    def update(
        self, key: Tensor, value: Tensor, layer_idx: int, *_: object
    ) -> tuple[Tensor, Tensor]:
        """Record one layer."""
        self.layers.append(layer_idx)
        self.rows.append(RowShape(key.shape[1], key.shape[3], value.shape[3]))
        return key, value


def logits_by_rows(model: PreTrainedModel, batch: ForwardBatch, **more: Any) -> Tensor:
    """The logits of one batch, (1, T, V), or only of the tokens that `more` selects."""
    cache = cast(ShowsRows, batch.cache)  # true of every cache that such a model can have
    seen, positions = cache.visible_rows()
    hidden = torch.finfo(model.dtype).min
    mask = torch.zeros_like(seen, dtype=model.dtype).masked_fill(~seen, hidden)
    with biases_at(positions):
        logits: Tensor = model(
            input_ids=batch.ids[None],
            position_ids=batch.positions[None],
            attention_mask=mask[None, None],
            past_key_values=RowsAsPast(cache),
            use_cache=False,
            **more,
        ).logits
    return logits


@contextmanager
def biases_at(positions: Tensor) -> Iterator[None]:
    """Place the rows at these positions in the block, for models prepared by `place_biases`."""
    token = _row_positions.set(positions)
    try:
        yield
    finally:
        _row_positions.reset(token)


def place_biases(model: nn.Module) -> None:
    """Make a model's distance bias follow the positions of the rows that it is shown."""
    for module in model.modules():
        for name in _BIAS_METHODS:
            make = getattr(module, name, None)
            if callable(make) and not isinstance(make, _PlacedBias):
                setattr(module, name, _PlacedBias(make))


class _PlacedBias:
    """Builds the model's own bias for a text of all positions, and reorders it by row."""

    def __init__(self, make: Callable[..., Tensor]) -> None:
        self._make = make

    def __call__(self, first: Any, second: Any, *args: Any, **kwargs: Any) -> Tensor:
        positions = _row_positions.get()
        if positions is None:
            return self._make(first, second, *args, **kwargs)
        if isinstance(first, Tensor):  # arguments: a text mask, the number of heads
            length = int(positions.max()) + 1
            first = torch.ones((1, length), dtype=torch.int64, device=positions.device)
        return self._make(first, second, *args, **kwargs)[..., positions]


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
