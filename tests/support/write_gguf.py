"""Write models of transformers as GGUF files: the embedded one for llama.cpp, tiny ones for tests.

    python tests/support/write_gguf.py embedded.gguf

Weights are stored in float32, so that a server computes what the engine computes. Tensors are
ordered as by llama.cpp's own converter.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
from transformers import AutoModelForCausalLM, PreTrainedModel

from eab.engine.models.gguf.header import read_header
from eab.engine.models.sources import EMBEDDED_FOLDER

# The GGUF keys, without the architecture's prefix, of settings in transformers
_KEYS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon",
}


def write_embedded(target: Path) -> None:
    """Write the embedded model. The vocabulary and its merges are those of its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER)
    write(model, target, kinds=None, more={"general.name": "embedded"})


def write(
    model: PreTrainedModel,
    path: Path,
    architecture: str = "llama",
    kinds: Mapping[str, int] | None = MappingProxyType({"<end>": 3}),
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    more: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    **writer_options: Any,
) -> Path:
    """Write a model whose vocabulary is the words `w<i>`; only `w5` can be encoded.

    Args:
        model: A model of a family in `eab.engine.models.gguf.checkpoint.FAMILIES`.
        path: The file.
        architecture: The family's name in llama.cpp.
        kinds: The types of tokens that are not normal (1); None for the embedded model's tokenizer.
        kind: The storage type of matrices.
        more: Additional fields: numbers, strings, or lists of strings.
        tensors: Additional tensors.
        writer_options: Options of gguf.GGUFWriter, such as split_max_tensors.
    """
    writer = gguf.GGUFWriter(path, architecture, **writer_options)
    config = model.config
    for name, key in _KEYS.items():
        if (value := getattr(config, name, None)) is not None:
            _add(writer, f"{architecture}.{key}", value)
    if (rope := getattr(config, "rope_parameters", None)) is not None:
        writer.add_float32(f"{architecture}.rope.freq_base", rope["rope_theta"])
    if kinds is None:
        _add_tokenizer(writer)
    else:
        _add_words(writer, config.vocab_size, kinds)
    for key, value in (more or {}).items():
        _add(writer, key, value)
    for name, values in named_tensors(model, architecture).items():
        stored = kind if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quantize(values, stored), raw_dtype=stored)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    _finish(writer)
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    kinds |= {str: writer.add_string, list: writer.add_array}
    kinds[type(value)](key, value)


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
            values = _interleaved(values, model.config, module)
        if architecture == "gpt2" and module.endswith(("c_attn", "c_proj", "c_fc")):
            values = values.T  # Conv1D
        found[f"{names.get_name(module)}.{kind}"] = np.ascontiguousarray(values)
    return found


def _interleaved(values: np.ndarray, config: Any, module: str) -> np.ndarray:
    """The rows in llama.cpp's order: it rotates neighbouring rows instead of halves of a head."""
    heads = config.num_attention_heads if "q_proj" in module else config.num_key_value_heads
    halves = values.reshape(heads, 2, -1, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def _add_words(writer: gguf.GGUFWriter, size: int, kinds: Mapping[str, int]) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = ["w0", "<end>", *(f"w{index}" for index in range(2, size - 2)), "w", "5"]
    writer.add_token_list(words)
    writer.add_token_types([kinds.get(word, 1) for word in words])
    writer.add_token_merges(["w 5"])
    writer.add_eos_token_id(1)


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    end = json.loads((EMBEDDED_FOLDER / "config.json").read_text())["eos_token_id"]
    tokenizer = json.loads((EMBEDDED_FOLDER / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["id"] for token in tokenizer["added_tokens"]}
    kinds = (gguf.TokenType.NORMAL, gguf.TokenType.CONTROL)
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")  # splits off single digits, then splits like GPT-2
    writer.add_token_list(sorted(vocabulary, key=vocabulary.__getitem__))
    writer.add_token_types([kinds[token in special] for token in range(len(vocabulary))])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(True)


def in_float32(source: Path, target: Path) -> Path:
    """Write a dequantized copy of a GGUF file."""
    header, reader = read_header(source), gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, header.architecture)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    _finish(writer)
    return target


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    write_embedded(parser.parse_args().target)
