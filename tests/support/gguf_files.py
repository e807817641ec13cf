"""Tiny transformers models as GGUF files."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import write_gguf
from transformers import PreTrainedModel


def write(
    model: PreTrainedModel,
    path: Path,
    architecture: str = "llama",
    kinds: Mapping[str, int] = {"<end>": 3},
    **options: Any,
) -> Path:
    """Write a model whose vocabulary is the words `w<i>`; only `w5` can be encoded.

    Args:
        model: A model of a family in `eab.engine.models.gguf.checkpoint.FAMILIES`.
        path: The file.
        architecture: The family's name in llama.cpp.
        kinds: The types of tokens that are not normal (1).
        options: Of `write_gguf.write`.
    """
    add_words = partial(_add_words, model.config.vocab_size, kinds)
    return write_gguf.write(model, path, add_words, architecture, **options)


def _add_words(size: int, kinds: Mapping[str, int], writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = ["w0", "<end>", *(f"w{index}" for index in range(2, size - 2)), "w", "5"]
    writer.add_token_list(words)
    writer.add_token_types([kinds.get(word, 1) for word in words])
    writer.add_token_merges(["w 5"])
    writer.add_eos_token_id(1)
