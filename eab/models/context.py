"""How many positions a model reads as it was trained."""

from typing import Any


def full_context(config: Any) -> int:
    """Positions that keep their K and V.

    That is the trained length. With the rotary embedding `longrope` it is the original length:
    beyond it transformers rotates all positions by other factors, and the K that a cache holds
    would keep the old ones.
    """
    names = ("max_position_embeddings", "max_seq_len")
    lengths = [int(getattr(config, name, None) or 2**20) for name in names]
    lengths += _original_lengths(config)
    return min(lengths)


def own_context(config: Any) -> int:
    """Positions that a model with its own memory can tell apart: there, too, `longrope` changes
    what is kept beyond the original length.
    """
    trained = int(getattr(config, "max_position_embeddings", None) or 2**20)
    return min(trained, *_original_lengths(config), 2**20)


def _original_lengths(config: Any) -> list[int]:
    """The original lengths of rotary embeddings that change beyond them."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(kind for kind in rope.values() if isinstance(kind, dict))]
    long = [kind for kind in kinds if kind.get("rope_type") == "longrope"]
    return [int(kind["original_max_position_embeddings"]) for kind in long]
