"""Tiny transformers models as GGUF files, with tensors ordered as by llama.cpp's own converter."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from transformers import PreTrainedModel

# The names of settings in transformers, by GGUF key without its architecture prefix
KEYS = {
    "context_length": ("max_position_embeddings", "n_positions"),
    "embedding_length": ("hidden_size",),
    "block_count": ("num_hidden_layers",),
    "feed_forward_length": ("intermediate_size",),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads",),
}
FLOATS = {
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_epsilon", "norm_epsilon"),
}


def write(
    model: PreTrainedModel,
    path: Path,
    architecture: str = "llama",
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    more: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    **writer_options: Any,
) -> Path:
    """Write a model whose vocabulary is the words `w<i>`; only `w5` can be encoded.

    Args:
        model: A model of a family in `eab.models.gguf.architecture.FAMILIES`.
        path: The file.
        architecture: The family's name in llama.cpp.
        kind: The storage type of matrices.
        more: Additional fields: numbers, strings, or lists of strings.
        tensors: Additional tensors.
        writer_options: Options of gguf.GGUFWriter, such as split_max_tensors.
    """
    writer = gguf.GGUFWriter(path, architecture, **writer_options)
    config = model.config
    for key, names in KEYS.items():
        if (value := first(config, names)) is not None:
            writer.add_uint32(f"{architecture}.{key}", value)
    for key, names in FLOATS.items():
        if (value := first(config, names)) is not None:
            writer.add_float32(f"{architecture}.{key}", value)
    if (rope := getattr(config, "rope_parameters", None)) is not None:
        writer.add_float32(f"{architecture}.rope.freq_base", rope["rope_theta"])
    if (head := getattr(config, "head_dim", None)) is not None:
        writer.add_uint32(f"{architecture}.attention.key_length", head)
    add_vocabulary(writer, config.vocab_size)
    for key, value in (more or {}).items():
        add(writer, key, value)
    for name, values in named_tensors(model, architecture).items():
        add_tensor(writer, name, values, kind)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def first(config: Any, names: tuple[str, ...]) -> Any:
    return next(
        (value for name in names if (value := getattr(config, name, None)) is not None), None
    )


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    kinds |= {str: writer.add_string, list: writer.add_array}
    kinds[type(value)](key, value)


def add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = ["w0", "<end>", *(f"w{index}" for index in range(2, size - 2)), "w", "5"]
    writer.add_token_list(words)
    writer.add_token_types([3 if word == "<end>" else 1 for word in words])
    writer.add_token_merges(["w 5"])
    writer.add_eos_token_id(1)


def add_tensor(
    writer: gguf.GGUFWriter, name: str, values: np.ndarray, kind: gguf.GGMLQuantizationType
) -> None:
    if values.ndim < 2 or kind == gguf.GGMLQuantizationType.F32:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)


def named_tensors(model: PreTrainedModel, architecture: str) -> dict[str, np.ndarray]:
    [family] = [one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture]
    names = gguf.get_tensor_name_map(family, model.config.num_hidden_layers)
    found = {}
    tied = model.config.tie_word_embeddings
    for place, weight in model.state_dict().items():
        module, _, kind = place.rpartition(".")
        if tied and module == "lm_head":
            continue
        values = weight.float().numpy()
        if architecture == "llama" and module.endswith(("q_proj", "k_proj")):
            values = interleaved(values, model.config, module)
        if architecture == "gpt2" and module.endswith(("c_attn", "c_proj", "c_fc")):
            values = values.T  # Conv1D
        found[f"{names.get_name(module)}.{kind}"] = np.ascontiguousarray(values)
    return found


def interleaved(values: np.ndarray, config: Any, module: str) -> np.ndarray:
    """The rows in llama.cpp's order: it rotates neighbouring rows instead of halves of a head."""
    heads = config.num_attention_heads if "q_proj" in module else config.num_key_value_heads
    halves = values.reshape(heads, 2, -1, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
