"""Write the embedded model as a GGUF file for llama.cpp.

    python scripts/write_gguf.py embedded.gguf

Weights are stored in float32, so that a server computes what the engine computes. The vocabulary
and its merges are those of the tokenizer.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

from eab.models.gguf.header import read_header
from eab.models.sources import EMBEDDED_FOLDER

# transformers -> GGUF, for the weights of a layer
_OF_A_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(target: Path) -> None:
    config = json.loads((EMBEDDED_FOLDER / "config.json").read_text())
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_name("embedded")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    _add_tokenizer(writer, config["eos_token_id"])
    for name, weights in load_file(EMBEDDED_FOLDER / "model.safetensors").items():
        heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
        values = weights.astype(np.float32)
        rotary = "q_proj" in name or "k_proj" in name
        writer.add_tensor(_name(name), _interleaved(values, heads) if rotary else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, end: int) -> None:
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


def _name(name: str) -> str:
    if not name.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight"}.get(name, "output_norm.weight")
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{_OF_A_LAYER[part.removesuffix('.weight')]}.weight"


def _interleaved(weights: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the rows of a query or key matrix, (H x D, E): llama.cpp rotates neighbouring rows,
    transformers the two halves of a head.
    """
    halves = weights.reshape(heads, 2, -1, weights.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weights.shape))


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
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    write_gguf(parser.parse_args().target)
