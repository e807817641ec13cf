"""Turns the metadata of a GGUF file into a transformers configuration, and loads its weights into a
transformers model, in full precision.

Only families whose every setting is understood are read: transformers ignores unknown settings,
which would give a different model. Quantized blocks are converted back to floats. The four-bit
kernels here keep their scales in bfloat16, GGUF in float16, so they would compute a different model
(see docs/models.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, dequantize, get_tensor_name_map
from torch import Tensor
from transformers import (
    AutoConfig,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from eab.engine.models.gguf.header import Header, TensorInfo, read_header, read_tensor
from eab.engine.models.gguf.tokenizer import generation_of, tokenizer_of
from eab.engine.models.pretrained import (
    MAX_COUNT,
    SizeLimit,
    refuse_absurd_size,
    refuse_missing_weights,
)
from eab.engine.models.sources import Source
from eab.errors import ModelError
from eab.formatting import quoted, reason_of

ROPE_FACTORS: Final = "rope_freqs.weight"  # Llama 3's rotary scaling, as a tensor
# The training settings of Llama 3.1, 3.2 and 3.3 (their config.json); the factor is in the file.
_LLAMA3: Final = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True, slots=True)
class Family:
    """A model family that can be read."""

    model_type: str
    # Settings missing from transformers' own table: name in the file -> name in transformers
    more: Mapping[str, str] = field(default_factory=dict)
    # transformers settings that hold for every file of the family
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
_EPSILONS: Final = {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}
# Without these, transformers would use its defaults, which are those of other models.
_NEEDED: Final = {
    *("context_length", "embedding_length", "block_count", "attention.head_count"),
    *_EPSILONS,
}
_REAL: Final = {"rope.freq_base", *_EPSILONS}
_FEW: Final = {
    *("block_count", "attention.head_count", "attention.head_count_kv", "attention.key_length"),
}
_MOST: Final = 2**31 - 1
# These repeat other settings, or do not affect the computation.
_WITHOUT_EFFECT: Final = {
    *("attention.value_length", "rope.dimension_count", "vocab_size", "tensor_data_layout"),
    *("rope.scaling.type", "rope.scaling.finetuned", "feed_forward_length"),
    *("rope.scaling.factor", "rope.scaling.original_context_length"),  # checked below
}


def config_of(name: str, header: Header) -> PreTrainedConfig:
    """The configuration of the model in a GGUF file.

    Raises:
        ModelError: The family cannot be read, or a setting is not understood or absurd.
    """
    family = FAMILIES.get(header.architecture)
    if family is None:
        raise ModelError(
            f"the GGUF file {quoted(name)} holds a model of the family "
            f"{quoted(header.architecture)}; {', '.join(FAMILIES)} can be read"
        )
    settings = _settings(name, header, family)
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


def _settings(name: str, header: Header, family: Family) -> dict[str, Any]:
    table: Any = GGUF_CONFIG_MAPPING[family.model_type]
    # Name in the file -> name in transformers; None for a setting without effect
    names: dict[str, str | None] = {**table, **family.more}
    prefix = f"{header.architecture}."
    own = [(key, value) for key, value in header.metadata.items() if key.startswith(prefix)]
    given = {key.removeprefix(prefix): value for key, value in own}
    settings = {**family.always, **_mapped(name, header, given, names)}
    if missing := sorted((_NEEDED & names.keys()) - given.keys()):
        raise header.refusal(f"it lacks the setting {quoted(prefix + missing[0])}")
    if (kv_heads := names.get("attention.head_count_kv")) is not None:
        settings.setdefault(kv_heads, given["attention.head_count"])
    _refuse_other_rope(name, given)
    settings["vocab_size"] = _vocabulary_size(name, header, given["embedding_length"])
    settings["tie_word_embeddings"] = "output.weight" not in header.tensors
    if family.model_type == "llama":
        settings["attention_bias"] = any(".attn_q.bias" in tensor for tensor in header.tensors)
    for token in ("bos", "eos", "padding"):
        settings[f"{token[:3]}_token_id"] = header.token_id(token)
    return settings


def _mapped(
    name: str, header: Header, given: Mapping[str, Any], names: Mapping[str, str | None]
) -> dict[str, Any]:
    """The settings by their transformers names; ModelError for one that is not understood."""
    settings = {}
    for key, value in given.items():
        if (ours := names.get(key)) is not None:
            settings[ours] = _checked_number(header, key, value)
        elif key == "attention.causal" and value is True:
            continue
        elif key not in _WITHOUT_EFFECT and (value or key == "attention.causal"):  # e.g. 0 experts
            raise ModelError(
                f"the GGUF file {quoted(name)} has the setting "
                f"{quoted(f'{header.architecture}.{key}')}, which is not supported"
            )
    return settings


def _checked_number(header: Header, key: str, value: Any) -> int | float:
    """The value of a setting; ModelError if the setting cannot have it."""
    most = MAX_COUNT if key in _FEW else _MOST
    if key in _REAL:
        if type(value) in (int, float) and 0 < value <= most:
            return float(value)
    elif type(value) is int and 1 <= value <= most:
        return value
    kind = "number" if key in _REAL else "whole number"
    raise header.refusal(
        f"its setting {quoted(f'{header.architecture}.{key}')} is {quoted(value)}; it must be a "
        f"{kind} above 0 and at most {most:,}"
    )


def _vocabulary_size(name: str, header: Header, width: int) -> int:
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"the GGUF file {quoted(name)} has no tensor token_embd.weight")
    if embedding.shape != (len(header.tokens), width):
        raise header.refusal(
            f"it has {len(header.tokens):,} tokens of {width:,} numbers, and its tensor "
            f"token_embd.weight has a shape of {quoted(embedding.shape)}"
        )
    return len(header.tokens)


def _refuse_other_rope(name: str, given: Mapping[str, Any]) -> None:
    """Refuse rotary scaling: transformers does not read it from GGUF; tokens would differ."""
    # llama.cpp treats a factor without a type as linear, and a factor of 0 as none.
    kind, factor = given.get("rope.scaling.type", "linear"), given.get("rope.scaling.factor", 1.0)
    if kind != "none" and factor not in (0.0, 1.0):
        raise ModelError(
            f"the GGUF file {quoted(name)} scales its rotary embedding ({quoted(kind)}, factor "
            f"{quoted(factor)}), which is not supported in GGUF. Use the same model from the "
            "Hugging Face Hub"
        )
    width = given.get("rope.dimension_count")
    usual = given["embedding_length"] // given["attention.head_count"]
    head = given.get("attention.key_length", usual)
    if width and width != head:
        raise ModelError(
            f"the GGUF file {quoted(name)} rotates {quoted(width)} of the {quoted(head)} numbers "
            "of a head, which is not supported"
        )


def _with_llama3_rope(name: str, header: Header, config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration with Llama 3's rotary scaling. The file stores the factors as a tensor;
    they are recomputed from the largest one and compared.
    """
    tensor = header.tensors[ROPE_FACTORS]
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if tensor.shape == (head // 2,) and tensor.kind == GGMLQuantizationType.F32:
        with tensor.file.open("rb") as file:
            factors = torch.frombuffer(bytearray(read_tensor(file, tensor)), dtype=torch.float32)
        base = config.rope_parameters["rope_theta"]
        config.rope_parameters = {"rope_theta": base, **_LLAMA3, "factor": float(factors.max())}
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
        plain = 1.0 / base ** (torch.arange(0, head, 2) / head)
        if torch.allclose(plain / factors, scaled, rtol=1e-4):
            return config
    raise ModelError(
        f"the GGUF file {quoted(name)} has factors of its rotary embedding other than those of "
        "Llama 3, which are not supported"
    )


_MORE_NUMBERS: Final = 2**24  # for buffers, such as tables of positions


def size_limit(header: Header) -> SizeLimit:
    """The size limit for a model with the tensors that the file lists."""
    numbers = sum(prod(tensor.shape) for tensor in header.tensors.values())
    return SizeLimit(4 * len(header.tensors) + 1000, 2 * numbers + _MORE_NUMBERS)


def describe(
    name: str, source: Source
) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig, GenerationConfig]:
    """Tokenizer, configuration and generation config of a model."""
    header = read_header(Path(source.place))
    config = config_of(name, header)  # first: it checks that the vocabulary fits the model
    return tokenizer_of(name, header), config, generation_of(header)


def load(
    name: str, source: Source, dtype: torch.dtype, holds_all: torch.device
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """The tokenizer, and the model on the CPU.

    Raises:
        ModelError: The file is damaged, too large for this machine, of a family that cannot be
            read, or changes while it is being read.
    """
    header = read_header(Path(source.place))
    before = _marks(header)
    config = config_of(name, header)
    empty = refuse_absurd_size(name, config, size_limit(header), dtype, holds_all)
    tokenizer = tokenizer_of(name, header)
    weights = _weights(name, header, config, empty, dtype)
    from_pretrained: Any = type(empty).from_pretrained
    loaded: Any = from_pretrained(
        None, config=config, state_dict=weights, dtype=dtype, output_loading_info=True
    )
    model, info = loaded
    refuse_missing_weights(name, info)
    model.generation_config = generation_of(header)
    if _marks(header) != before:
        raise ModelError(f"the file of {quoted(name)} changed while it was read; try again")
    return tokenizer, model


def _marks(header: Header) -> list[tuple[int, int]]:
    """Size and modification time of each file, which change if somebody writes to it."""
    states = [file.stat() for file in header.files]
    return [(state.st_size, state.st_mtime_ns) for state in states]


def _weights(
    name: str, header: Header, config: PreTrainedConfig, empty: PreTrainedModel, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The weights by their transformers names."""
    kind: Any = TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)
    processor = kind(config=config.to_dict())
    places = _places(header.architecture, config.num_hidden_layers, empty)
    shapes = {place: weight.shape for place, weight in empty.state_dict().items()}
    weights: dict[str, Tensor] = {}
    for file in header.files:
        with file.open("rb") as opened:
            for tensor in header.tensors.values():
                if tensor.file == file and tensor.name != ROPE_FACTORS:
                    place = _place(name, tensor, places)
                    if prod(tensor.shape) != shapes[place].numel():  # checked before reading
                        raise _other_shape(name, tensor, shapes[place])
                    values = _values(read_tensor(opened, tensor), tensor)
                    if tensor.name != "output.weight":  # the processor of GPT-2 fails on it
                        values = processor.process(weights=values, name=tensor.name).weights
                    weights[place] = torch.from_numpy(np.array(values)).to(dtype)
                    if weights[place].shape != shapes[place]:
                        raise _other_shape(name, tensor, shapes[place])
    return weights


def _other_shape(name: str, tensor: TensorInfo, expected: torch.Size) -> ModelError:
    return ModelError(
        f"the tensor {quoted(tensor.name)} in {quoted(name)} has a shape of {tensor.shape}; the "
        f"settings of the file ask for {tuple(expected)}"
    )


def _places(architecture: str, layers: int, empty: PreTrainedModel) -> dict[str, str]:
    """Names in the file -> names of the weights in transformers."""
    [family] = [key for key, name in MODEL_ARCH_NAMES.items() if name == architecture]
    names = get_tensor_name_map(family, layers)
    places = {}
    for place in empty.state_dict():
        module, _, kind = place.rpartition(".")
        if (in_file := names.get_name(module)) is not None:
            places[f"{in_file}.{kind}"] = place
    return places


def _place(name: str, tensor: TensorInfo, places: Mapping[str, str]) -> str:
    if tensor.name not in places:
        raise ModelError(
            f"the GGUF file {quoted(name)} has the tensor {quoted(tensor.name)}, which its family "
            "has no place for; it is another kind of model"
        )
    return places[tensor.name]


def _values(data: bytes, tensor: TensorInfo) -> Any:
    """The values of a tensor, in float32 or as stored."""
    rows = np.frombuffer(data, np.uint8).reshape(*tensor.shape[:-1], -1)
    try:
        return dequantize(rows, tensor.kind)
    except NotImplementedError as error:
        raise ModelError(
            f"the tensor {quoted(tensor.name)} is stored as {tensor.kind.name}, which cannot be "
            "read; choose a file in another format, such as Q8_0"
        ) from error
