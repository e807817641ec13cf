"""How many positions a model supports, and at which length it changes its rotary factors.

With the rotary embedding `longrope`, transformers rotates all positions of a text by other factors
once the text is longer than the original length. This changes the K of earlier tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

# The check at loading reads beyond windows of at most this size; a longer text would take minutes.
LONGEST_CHECKED_WINDOW = 512
_long: ContextVar[bool] = ContextVar("long", default=False)


def full_context(config: Any) -> int:
    """Number of positions that a model was trained for."""
    names = ("max_position_embeddings", "max_seq_len")
    return min(int(getattr(config, name, None) or 2**20) for name in names)


def own_context(config: Any) -> int:
    """Number of positions that a model with its own memory can tell apart. Its memory cannot switch
    to other rotary factors, nor read texts by a mask that begins beyond the text of the check.
    """
    trained = int(getattr(config, "max_position_embeddings", None) or 2**20)
    kept = getattr(config, "keep_window_size", 0)  # Doge's mask drops tokens beyond it
    unchecked = kept if kept > LONGEST_CHECKED_WINDOW else trained
    return min(trained, original_length(config) or trained, unchecked, 2**20)


def original_length(config: Any) -> int:
    """The longest text that is read with the first rotary factors; 0 if there are no others."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(kind for kind in rope.values() if isinstance(kind, dict))]
    long = [kind for kind in kinds if kind.get("rope_type") == "longrope"]
    return min((int(kind["original_max_position_embeddings"]) for kind in long), default=0)


def let_read_long_texts(model: nn.Module, original: int) -> bool:
    """Prepare a model for `reading_long_texts`; False if it has no embedding that can be switched.

    transformers chooses the factors by the largest position of a pass. So the embedding gets one
    extra position, beyond the original length.
    """

    def with_one_beyond(_: nn.Module, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
        if not _long.get():
            return None
        positions = more.pop("position_ids", None)
        hidden, positions = (*given, positions)[:2]
        beyond = positions.new_full((*positions.shape[:-1], 1), original)
        return (hidden, torch.cat([positions, beyond], -1)), more

    def without_it(_: nn.Module, given: Any, rotations: tuple[Tensor, ...]) -> Any:
        return tuple(rotation[..., :-1, :] for rotation in rotations) if _long.get() else None

    embeddings = [
        module for module in model.modules() if getattr(module, "rope_type", None) == "longrope"
    ]
    for module in embeddings:
        module.register_forward_pre_hook(with_one_beyond, with_kwargs=True)
        module.register_forward_hook(without_it)
    return bool(embeddings)


@contextmanager
def reading_long_texts(whether: bool = True) -> Iterator[None]:
    """Rotate positions as in texts beyond the original length while in the block."""
    token = _long.set(whether)
    try:
        yield
    finally:
        _long.reset(token)
