"""The last resort: a decoder-only model of transformers that keeps its memory itself.

Any family that transformers can generate with can be driven so, such as one with recurrent states.
It costs what the caches of this project save: nothing is shared between paths.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from eab.caches.base import ForwardBatch
from eab.caches.own import OwnCache
from eab.caches.shape import KVShape, OwnMemory
from eab.errors import ModelError
from eab.formatting import human_bytes
from eab.models.context import own_context
from eab.models.families import ADVICE, refuse_without_text
from eab.models.huggingface import HuggingFaceModel
from eab.models.own_check import checked_reader, measured_memory
from eab.models.own_reader import OwnReader
from eab.models.quantized_checkpoint import quantized_by, refuse_dependent_rows
from eab.models.stored_weights import AS_LOADED_WEIGHTS, StoredWeights
from eab.models.transformers_model import TransformersModel, max_error


def driven(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    stored: StoredWeights = AS_LOADED_WEIGHTS,
    sha256: str = "",
) -> TransformersModel:
    """The model with our caches, or with its own memory if they cannot serve it.

    Raises:
        ModelError: Neither serves it.
    """
    refuse_without_text(model)
    try:
        return HuggingFaceModel(model, tokenizer, name, stored, sha256)
    except ModelError as error:
        reason = str(error).removesuffix(f". {ADVICE}")
    try:
        return OwnCacheModel(model, tokenizer, name, reason, stored, sha256)
    except ModelError as error:
        raise ModelError(f"{error}. {ADVICE}") from None


class OwnCacheModel(TransformersModel):
    """A LanguageModel of transformers with its own memory.

    Args:
        reason: Why our caches cannot serve it, in words.

    Raises:
        ModelError: It is not causal, or computes other logits with its memory than without.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        reason: str,
        stored: StoredWeights = AS_LOADED_WEIGHTS,
        sha256: str = "",
    ) -> None:
        config = model.config.get_text_config()
        context = own_context(config)
        model.eval()
        self._reader = checked_reader(model, config.vocab_size, context, max_error(model, stored))
        memory = measured_memory(self._reader, model.device, context)
        shape = _shape(config, model, memory)
        super().__init__(model, tokenizer, name, context, stored)
        self._describe(shape, sha256)
        words = f"Nothing is shared between paths, because {reason}. {_words(self._reader, memory)}"
        self.card = replace(self.card, own_memory=words, state_bytes=memory.state_bytes)
        if method := quantized_by(model):
            refuse_dependent_rows(model, method)

    def forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        """Run by run: their texts have different lengths."""
        logits = []
        for batch in batches:
            assert isinstance(batch.cache, OwnCache)
            logits.append(batch.cache.read(self._reader))
        return logits[0] if len(logits) == 1 else torch.cat(logits)


def _words(reader: OwnReader, memory: OwnMemory) -> str:
    if not reader.way.keeps:
        return "With its own memory it computes other logits, so every step reads the whole texts."
    if not reader.keeps_memory:
        return "The model keeps no memory: every step reads the whole texts again."
    row, state = human_bytes(memory.row_bytes), human_bytes(memory.state_bytes)
    size = f"{row} for each token and {state} of states"
    if not memory.row_bytes:
        size = f"{state} of states, whatever the length of its text"
    elif not memory.state_bytes:
        size = f"{row} for each token"
    return f"Each path has a copy of transformers' own memory: {size}."


def _shape(config: Any, model: PreTrainedModel, memory: OwnMemory) -> KVShape:
    """For the model's card: numbers that its family does not have are 0."""
    numbers = config.to_dict()
    heads, size = numbers.get("num_attention_heads"), numbers.get("head_dim")
    return KVShape(
        layers=int(config.num_hidden_layers),
        kv_heads=_number(numbers.get("num_key_value_heads"), heads),
        head_dim=_number(size, config.hidden_size // heads if isinstance(heads, int) else 0),
        dtype=model.dtype,
        device=model.device,
        own=memory,
    )


def _number(*given: object) -> int:
    """The first of these that is a number; layers may differ in it."""
    return next((number for number in given if isinstance(number, int)), 0)
