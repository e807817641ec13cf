"""The fallback: a decoder-only transformers model that manages its own memory.

Any family that transformers can generate with can run this way, such as one with recurrent states.
The caches' savings are lost: nothing is shared between paths.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from msgspec import structs
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.own import OwnCache
from eab.engine.caches.shape import KVShape, OwnMemory
from eab.engine.models.attention_calls import note_attention, shape_of
from eab.engine.models.cache_attention import follow_layers, our_attention, stop_between_layers
from eab.engine.models.configuration import (
    ADVICE,
    impossible_window,
    own_context,
    refuse_without_text,
)
from eab.engine.models.huggingface import HuggingFaceModel, layer_rows
from eab.engine.models.own_reader import OwnReader, checked_reader, measured_memory
from eab.engine.models.transformers_model import TransformersModel, reach_words, tokens_to_check
from eab.engine.models.weights import AS_LOADED_WEIGHTS, StoredWeights
from eab.errors import ModelError
from eab.formatting import counted, human_bytes


def with_cache(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    stored: StoredWeights = AS_LOADED_WEIGHTS,
    sha256: str = "",
) -> TransformersModel:
    """Wrap the model with our caches, or with its own memory if they cannot serve it.

    Raises:
        ModelError: It works with neither.
    """
    refuse_without_text(model)
    try:
        return HuggingFaceModel(model, tokenizer, name, stored, sha256)
    except ModelError as error:
        reason = str(error).removesuffix(f". {ADVICE}")
    follow_layers(model)
    with suppress(ModelError), our_attention(model, f"{name} is not a hybrid model"):
        return OwnCacheModel(model, tokenizer, name, stored, sha256)
    try:
        return OwnCacheModel(model, tokenizer, name, stored, sha256, reason)
    except ModelError as error:
        window = impossible_window(model.config.get_text_config())
        raise ModelError(window or f"{error}. {ADVICE}") from None


class OwnCacheModel(TransformersModel):
    """A transformers LanguageModel with its own memory. That of a hybrid model consists of states;
    the rows of its attention layers, which must call our attention, are in a tree cache.

    Args:
        reason: Why our caches cannot serve it, as part of a sentence; empty for a hybrid model.

    Raises:
        ModelError: It is not causal, its logits differ with and without its memory, or it is no
            hybrid model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        stored: StoredWeights = AS_LOADED_WEIGHTS,
        sha256: str = "",
        reason: str = "",
    ) -> None:
        config = model.config.get_text_config()
        context = own_context(config)
        super().__init__(model, tokenizer, name, context, stored)
        rows = None if reason else _rows_of_attention(model, config.vocab_size, context)
        self._reader = checked_reader(model, config.vocab_size, context, self._max_error, rows)
        memory = measured_memory(self._reader, model.device, context)
        shape = _shape(config, model, memory) if rows is None else _with_states(rows, memory)
        self._describe(shape, sha256, layer_rows(shape))
        self.card = structs.replace(
            self.card,
            own_memory=_words(self._reader, shape, reason),
            state_bytes=memory.state_bytes,
            shares_rows=not reason,
        )
        stop_between_layers(model)

    def forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        """Process the batches run by run, because their texts have different lengths."""
        logits = []
        for batch in batches:
            assert isinstance(batch.cache, OwnCache)
            logits.append(batch.cache.read(self._reader))
        return logits[0] if len(logits) == 1 else torch.cat(logits)


def _rows_of_attention(model: PreTrainedModel, vocab_size: int, context: int) -> KVShape:
    """The KV shape of the layers that call transformers' attention, once each."""
    tokens = tokens_to_check(min(12, context), vocab_size)
    record, _ = note_attention(model, tokens, context)
    known = [layer for layer in record.attention if layer is not None]
    numbers = tuple(record.layers)
    if not known or len(known) < len(numbers) or list(numbers) != sorted(set(numbers)):
        raise ModelError("its attention layers are not of a kind that the caches know")
    shape = shape_of(known, model)
    return replace(shape, own=OwnMemory(shape.row_bytes, 0, shared_layers=numbers))


def _with_states(rows: KVShape, states: OwnMemory) -> KVShape:
    assert rows.own is not None
    shared = rows.own.shared_layers
    return replace(rows, own=replace(states, row_bytes=rows.row_bytes, shared_layers=shared))


def _words(reader: OwnReader, shape: KVShape, reason: str) -> str:
    """What is shared between paths, and what each has."""
    row, state = human_bytes(shape.row_bytes), human_bytes(shape.state_bytes)
    if not reason:
        return (
            f"The KV rows of {counted(shape.layers, 'attention layer')} are shared between paths, "
            f"{row} for each token. Each path has a copy of the states of the other layers, "
            f"{state}, whatever the length of its text.{reach_words(shape)}"
        )
    size = f"{row} for each token and {state} of states"
    if not shape.row_bytes:
        size = f"{state} of states, whatever the length of its text"
    elif not shape.state_bytes:
        size = f"{row} for each token"
    has = f"Each path has a copy of transformers' own memory: {size}."
    if reader.failure:
        has = (
            f"It does not run with the cache of transformers ({reader.failure}), so every step "
            "reads the whole text again."
        )
    elif not reader.convention.keeps:
        has = "Its own memory changes the logits, so every step reads the whole text again."
    elif not reader.keeps_memory:
        has = "The model keeps no memory: every step reads the whole text again."
    return f"Nothing is shared between paths, because {reason}. {has}"


def _shape(config: Any, model: PreTrainedModel, memory: OwnMemory) -> KVShape:
    """The shape shown on the model card; numbers that the family does not have are 0."""
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
    """The first int among these, else 0; a list (one entry per layer) does not count."""
    return next((number for number in given if isinstance(number, int)), 0)
