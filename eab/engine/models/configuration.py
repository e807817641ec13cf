"""What the configuration of a model says: whether the caches can serve its family, how many
positions it supports, and which sampling settings its authors recommend.

With the rotary embedding `longrope`, transformers rotates all positions of a text by other factors
once the text is longer than the original length. This changes the K of earlier tokens.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from eab.config import SETTINGS, BranchingConfig
from eab.engine.branching.presets import START
from eab.engine.models.packaged import SMOLLM2
from eab.errors import ConfigError, ModelError
from eab.formatting import listed

ADVICE: Final = "Choose a Llama, Qwen, Mistral, GPT-2, GPT-NeoX, OPT or Phi"
# Layer types: transformers' names and plain names
_IN_WORDS: Final = {
    "linear_attention": "recurrent layers",
    "conv": "convolutions",
    "hybrid": "layers with attention and a state",
}
_WINDOWS: Final = (
    *("sliding_window", "attention_chunk_size", "attention_window_size", "window_size"),
    "keep_window_size",
)
_LAYER_TYPES: Final = {"full_attention", "sliding_attention", "chunked_attention"}


def refuse_quantized(config: Any) -> None:
    """Refuse a checkpoint that another library quantized: in some of their layers the result of a
    row depends on the other rows (Dettmers et al., LLM.int8(), 2022, arXiv 2208.07339, section
    3.2), so a text would depend on its siblings.
    """
    given = getattr(config, "quantization_config", None)
    if given is not None:
        method = given.get("quant_method") if isinstance(given, dict) else given.quant_method
        raise ModelError(
            f"the weights are already quantized ({getattr(method, 'value', method)}); load the "
            "original model with weights such as int8 or nf4, or a GGUF file of it"
        )


def refuse_without_text(model: PreTrainedModel) -> None:
    """Refuse models that do not generate text, are not decoder-only, or are quantized."""
    refuse_quantized(model.config)
    config, reason = model.config.get_text_config(), None
    if model.config.is_encoder_decoder:
        reason = "is an encoder-decoder model; the engine needs a decoder-only one"
    elif not model.can_generate():
        reason = "does not generate text"
    elif int(getattr(config, "num_hidden_layers", 1)) < 1:
        reason = "has no layers in this configuration"
    if reason:
        raise ModelError(f"the model family {config.model_type!r} {reason}. {ADVICE}")


def refuse_by_config(model: PreTrainedModel) -> None:
    """Refuse model families that a cache of masked K and V rows cannot serve."""
    refuse_without_text(model)
    config = model.config.get_text_config()
    if others := set(getattr(config, "layer_types", None) or _LAYER_TYPES) - _LAYER_TYPES:
        kinds = [_IN_WORDS.get(kind, f"layers of kind {kind}") for kind in sorted(others)]
        raise ModelError(
            f"the model family {config.model_type!r} has {' and '.join(kinds)}. {ADVICE}"
        )


def windows(config: PreTrainedConfig) -> dict[str, int]:
    """The sizes of attention windows in the configuration."""
    sizes = {name: getattr(config, name, None) for name in _WINDOWS}
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


def impossible_window(config: PreTrainedConfig) -> str:
    """An error text for an attention window without tokens; empty if there is no such window. Only
    used after a model has failed, because 0 means no window in some families.
    """
    for name, size in windows(config).items():
        if size < 1:
            return (
                f"the configuration of the model family {config.model_type!r} says {name} = "
                f"{size}, but a window has at least one token. Correct config.json"
            )
    return ""


def refuse_uneven_layers(config: PreTrainedConfig) -> None:
    """Refuse a configuration in which some layers have settings of their own, as in Gemma 4."""
    if config.is_heterogeneous:
        raise ModelError(
            f"the model family {config.model_type!r} has layers that differ, for example in the "
            f"size of their heads; a cache needs equal rows in every layer. {ADVICE}"
        )


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


# Families whose checkpoints do not include them, by a part of their names; from their model cards.
_FAMILIES: Final = {"smollm2": SMOLLM2.recommended}
_SETTINGS: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def recommended_settings(name: str, generation_config: Any) -> Mapping[str, float]:
    """The settings that the checkpoint or its family recommends, as far as a run has them."""
    given = {} if generation_config is None else generation_config.to_diff_dict()
    settings = {setting: given[setting] for setting in _SETTINGS if _is_allowed(setting, given)}
    if settings:
        return settings
    return next((known for part, known in _FAMILIES.items() if part in name.lower()), {})


def advice(model: Any, config: BranchingConfig) -> str:
    """A sentence with the model's recommendation, while the settings are at their defaults."""
    known: Mapping[str, float] = getattr(model, "recommended", {})
    if not known or any(getattr(config, name) != getattr(START, name) for name in known):
        return ""
    words = listed([f"{name} {value:g}" for name, value in known.items()])
    defaults = listed([f"{getattr(START, name):g}" for name in known])
    return f"{model.card.name} recommends {words}; the defaults are {defaults}."


def _is_allowed(setting: str, given: Mapping[str, Any]) -> bool:
    """Whether the checkpoint has this setting with a value in range."""
    try:
        SETTINGS[setting].values.check(setting, given[setting])
    except (KeyError, ConfigError):
        return False
    return True
