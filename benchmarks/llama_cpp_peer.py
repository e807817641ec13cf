"""Runs one decode step of llama.cpp for each line of input and prints its seconds.
benchmarks/quantization.py starts this with the Python of an environment that has llama-cpp-python
and gguf, so that the steps of llama.cpp take turns with ours.

    PYTHON benchmarks/llama_cpp_peer.py '{"layers": 24, ..., "weights": "Q8_0", ...}'

The model has the given shape and random weights. All its matrices, including the output layer, have
one format. Matrices of the same shape share the same bytes, because the time of a step does not
depend on the values. This file does not import the project, which is not installed there.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np


def write_model(file: Path, shape: dict[str, Any]) -> None:
    """Write a GGUF file with random weights. The format `weights` in `shape` is Q8_0 or Q4_0."""
    hidden, inner, vocab = shape["hidden"], shape["inner"], shape["vocab"]
    size = hidden // shape["heads"]
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(shape["layers"])
    writer.add_context_length(shape["context"])
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_rope_dimension_count(size)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("no_vocab")
    kind = gguf.GGMLQuantizationType[shape["weights"]]
    made: dict[tuple[int, int], np.ndarray] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        if (rows, columns) not in made:
            random = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
            made[rows, columns] = gguf.quants.quantize(0.02 * random, kind)
        writer.add_tensor(name, made[rows, columns], raw_dtype=kind)

    ones = np.ones(hidden, dtype=np.float32)
    matrix("token_embd.weight", vocab, hidden)  # shared with the output layer
    writer.add_tensor("output_norm.weight", ones)
    keys = size * shape["kv_heads"]
    for layer in range(shape["layers"]):
        block = f"blk.{layer}"
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}.{name}.weight", ones)
        matrix(f"{block}.attn_q.weight", hidden, hidden)
        matrix(f"{block}.attn_k.weight", keys, hidden)
        matrix(f"{block}.attn_v.weight", keys, hidden)
        matrix(f"{block}.attn_output.weight", hidden, hidden)
        matrix(f"{block}.ffn_gate.weight", inner, hidden)
        matrix(f"{block}.ffn_up.weight", inner, hidden)
        matrix(f"{block}.ffn_down.weight", hidden, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Decoder:
    """Paths that share a prompt; each path grows by one token per step."""

    def __init__(self, model: Any, shape: dict[str, Any], paths: int, steps: int) -> None:
        self._paths, self._position = paths, shape["prompt"]
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = shape["prompt"] + paths * (steps + 1)
        options.n_batch = options.n_ubatch = max(512, paths)
        options.n_seq_max = paths
        options.kv_unified = True
        options.n_threads = options.n_threads_batch = shape["threads"]
        self._context = llama_cpp.llama_init_from_model(model, options)
        self._batch = llama_cpp.llama_batch_init(max(512, paths), 0, 1)
        self._decode([(position, 0) for position in range(shape["prompt"])], last_only=True)
        memory = llama_cpp.llama_get_memory(self._context)
        for path in range(1, paths):
            llama_cpp.llama_memory_seq_cp(memory, 0, path, -1, -1)

    def step(self) -> float:
        """Decode one step of all paths, and return its seconds."""
        start = time.perf_counter()
        self._decode([(self._position, path) for path in range(self._paths)], last_only=False)
        self._position += 1
        return time.perf_counter() - start

    def _decode(self, places: list[tuple[int, int]], last_only: bool) -> None:
        batch = self._batch
        batch.n_tokens = len(places)
        for index, (position, path) in enumerate(places):
            batch.token[index], batch.pos[index] = 1, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, path
            batch.logits[index] = int(not last_only or index == len(places) - 1)
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise RuntimeError("llama.cpp could not decode")
        llama_cpp.llama_synchronize(self._context)


def main() -> None:
    """Make the model. Then answer each line, a number of paths, with the seconds of one step."""
    shape = json.loads(sys.argv[1])
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, None)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.gguf"
        write_model(file, shape)
        options = llama_cpp.llama_model_default_params()
        model = llama_cpp.llama_model_load_from_file(str(file).encode(), options)
        print("ready" if model else "failed", flush=True)
        decoders: dict[int, Decoder] = {}
        for line in sys.stdin:
            rows = int(line)
            if rows not in decoders:
                decoders[rows] = Decoder(model, shape, rows, shape["steps"])
            print(decoders[rows].step(), flush=True)


if __name__ == "__main__":
    main()
