"""Refuses model families that the caches cannot serve, judging by the configuration."""

from typing import Final

from transformers import PreTrainedConfig, PreTrainedModel

from eab.errors import ModelError

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


def refuse_without_text(model: PreTrainedModel) -> None:
    """Refuse models that do not generate text or are not decoder-only."""
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
