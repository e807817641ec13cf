"""How many positions a model reads in full."""

from typing import Any

from torch import nn


def full_context(model: nn.Module, config: Any) -> int:
    """Positions that every layer sees in full, and that keep their K and V.

    That is the trained length, unless the attention window is shorter. With the rotary embedding
    `longrope` it is the original length: beyond it transformers rotates all positions by other
    factors, and the K that a cache holds would keep the old ones. Llama 4 scales the queries of
    layers without rotary embedding from position `floor_scale` - 1 on, and counts positions from
    the beginning of the pass.
    """
    lengths = [int(getattr(config, "max_position_embeddings", None) or 2**20)]
    lengths += [int(window) for window in _windows(model, config) if window]
    lengths += _original_lengths(config)
    if getattr(config, "attn_temperature_tuning", False):
        lengths.append(int(config.floor_scale) - 1)
    return min(lengths)


def _windows(model: nn.Module, config: Any) -> list[int | None]:
    """The attention windows of all layers; None for a layer that has none.

    In families whose layers differ, each layer holds its own window, but a layer that the
    configuration calls sliding always has a mask that slides (SmolLM3). The other families slide
    whenever their configuration has a window.
    """
    missing = object()
    held = [getattr(module, "sliding_window", missing) for module in model.modules()]
    of_layers = [window for window in held if window is None or isinstance(window, int)]
    of_model = getattr(config, "sliding_window", None)
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        of_layers.append(of_model)
    return of_layers or [of_model]


def _original_lengths(config: Any) -> list[int]:
    """The original lengths of rotary embeddings that change beyond them."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(kind for kind in rope.values() if isinstance(kind, dict))]
    long = [kind for kind in kinds if kind.get("rope_type") == "longrope"]
    return [int(kind["original_max_position_embeddings"]) for kind in long]
