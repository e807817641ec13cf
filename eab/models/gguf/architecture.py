"""From the metadata of a GGUF file to a configuration of transformers.

Only families whose every setting is understood are read: transformers ignores settings that it does
not know, and the model would then be another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from transformers import AutoConfig, PreTrainedConfig
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from eab.errors import ModelError
from eab.formatting import quoted, reason_of
from eab.models.gguf.header import Header, read_tensor
from eab.models.model_size import refuse_absurd_counts

ROPE_FACTORS: Final = "rope_freqs.weight"  # the rotary scaling of Llama 3, as a tensor
# What Llama 3.1, 3.2 and 3.3 were trained with (their config.json); the factor is in the file.
_LLAMA3: Final = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True, slots=True)
class Family:
    """A family that can be read.

    Attributes:
        model_type: Its name in transformers.
        more: Settings that transformers' own table lacks: their names here by those in the file.
        always: Settings of transformers that every file of the family has.
    """

    model_type: str
    more: Mapping[str, str] = field(default_factory=dict)
    always: Mapping[str, Any] = field(default_factory=dict)


_HEADS: Final = {"attention.key_length": "head_dim"}
FAMILIES: Final = {
    "llama": Family("llama", _HEADS),
    "qwen2": Family("qwen2", always={"use_sliding_window": False}),
    "qwen3": Family("qwen3", _HEADS, {"use_sliding_window": False}),
    "phi3": Family("phi3", {"attention.sliding_window": "sliding_window"}),
    "gpt2": Family("gpt2", {"context_length": "n_positions"}),
    "starcoder2": Family(
        "starcoder2",
        {"attention.sliding_window": "sliding_window", "rope.freq_base": "rope_theta"},
    ),
}
# They say again what others say, or nothing about the computation.
_WITHOUT_EFFECT: Final = {
    *("attention.value_length", "rope.dimension_count", "vocab_size", "tensor_data_layout"),
    *("attention.causal", "rope.scaling.type", "rope.scaling.finetuned", "feed_forward_length"),
    *("rope.scaling.factor", "rope.scaling.original_context_length"),  # checked below
}


def config_of(name: str, header: Header) -> PreTrainedConfig:
    """The configuration of the model in a GGUF file.

    Args:
        name: The name of the model.
        header: The header of the file.

    Raises:
        ModelError: Its family cannot be read, or a setting is not understood or absurd.
    """
    family = FAMILIES.get(header.architecture)
    if family is None:
        raise ModelError(
            f"the GGUF file {quoted(name)} holds a model of the family "
            f"{quoted(header.architecture)}; {', '.join(FAMILIES)} can be read"
        )
    settings = _settings(name, header, family)
    refuse_absurd_counts(name, settings)
    try:
        config: PreTrainedConfig = AutoConfig.for_model(family.model_type, **settings)
        if ROPE_FACTORS in header.tensors:
            config = _with_llama3_rope(name, header, config)
    except ModelError:
        raise
    except Exception as error:  # transformers raises anything for hostile settings
        raise ModelError(
            f"the GGUF file {quoted(name)} cannot be loaded: its settings describe no model that "
            f"can be built ({reason_of(error)})"
        ) from error
    return config


def _table(family: Family) -> dict[str, str | None]:
    """The settings of transformers by those of the file; None for one without effect."""
    known: Any = GGUF_CONFIG_MAPPING[family.model_type]
    return {**known, **family.more}


def _settings(name: str, header: Header, family: Family) -> dict[str, Any]:
    names = _table(family)
    prefix = f"{header.architecture}."
    given = {
        key.removeprefix(prefix): value
        for key, value in header.metadata.items()
        if key.startswith(prefix)
    }
    settings: dict[str, Any] = dict(family.always)
    for key, value in given.items():
        if (ours := names.get(key)) is not None:
            settings[ours] = value
        elif key not in _WITHOUT_EFFECT and value:  # 0 experts, for example
            raise ModelError(
                f"the GGUF file {quoted(name)} has the setting {quoted(prefix + key)}, which is "
                "not supported"
            )
    _refuse_other_rope(name, given)
    settings["vocab_size"] = _vocabulary_size(name, header)
    settings["tie_word_embeddings"] = "output.weight" not in header.tensors
    biases = any(".attn_q.bias" in tensor for tensor in header.tensors)
    if family.model_type == "llama":
        settings["attention_bias"] = biases
    for token in ("bos", "eos", "padding"):
        id = header.metadata.get(f"tokenizer.ggml.{token}_token_id")
        settings[f"{token[:3]}_token_id"] = id
    return settings


def _vocabulary_size(name: str, header: Header) -> int:
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"the GGUF file {quoted(name)} has no tensor token_embd.weight")
    return embedding.shape[0]


def _refuse_other_rope(name: str, given: Mapping[str, Any]) -> None:
    """transformers reads no rotary scaling from GGUF; without it, other tokens would come."""
    kind, factor = given.get("rope.scaling.type", "none"), given.get("rope.scaling.factor", 1.0)
    if kind != "none" and factor not in (0.0, 1.0):
        raise ModelError(
            f"the GGUF file {quoted(name)} scales its rotary embedding ({quoted(kind)}, factor "
            f"{quoted(factor)}), which is not supported in GGUF. Use the same model from the "
            "Hugging Face Hub"
        )
    width, head = given.get("rope.dimension_count"), given.get("attention.key_length")
    if width and head and width != head:
        raise ModelError(
            f"the GGUF file {quoted(name)} rotates {quoted(width)} of the {quoted(head)} numbers "
            "of a head, which is not supported"
        )


def _with_llama3_rope(name: str, header: Header, config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration with the rotary scaling of Llama 3, whose factors the file has as a tensor.

    They are made anew from their largest one and compared.
    """
    tensor = header.tensors[ROPE_FACTORS]
    with tensor.file.open("rb") as file:
        data = bytearray(read_tensor(file, tensor))
    factors = torch.frombuffer(data, dtype=torch.float32) if tensor.kind == 0 else torch.zeros(1)
    base = config.rope_parameters["rope_theta"]
    config.rope_parameters = {"rope_theta": base, **_LLAMA3, "factor": float(factors.max())}
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    width = 2 * len(scaled)
    plain = 1.0 / base ** (torch.arange(0, width, 2) / width)
    if factors.shape != plain.shape or not torch.allclose(plain / factors, scaled, rtol=1e-4):
        raise ModelError(
            f"the GGUF file {quoted(name)} has factors of its rotary embedding other than those of "
            "Llama 3, which are not supported"
        )
    return config
