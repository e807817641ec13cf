"""The base class of all transformers models, whoever keeps their memory."""

from collections.abc import Mapping
from itertools import starmap
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from eab.config import BranchingConfig
from eab.engine.branching.presets import START
from eab.engine.caches.shape import EVERYTHING, KVShape, Reach
from eab.engine.models.base import LanguageModel
from eab.engine.models.configuration import recommended_settings
from eab.engine.models.prompts import PromptEncoder, TokenTexts
from eab.engine.models.weights import StoredWeights, bytes_by_kind, fingerprint, matrix_modules
from eab.formatting import counted, human_bytes
from eab.run.events import LayerRow, ModelCard, WindowRows
from eab.run.events.chat import Prompt, markers_in
from eab.weight_formats import AS_LOADED


def rows_words(shape: KVShape) -> str:
    """What a tree cache holds if some layers differ from the usual; empty if none does."""
    reaches, borrowing = reach_words(shape), shape.layers - len(shape.stored)
    if borrowing:
        verb = "reads" if borrowing == 1 else "read"
        reaches += f" {_share(borrowing, shape)} {verb} the rows of another layer."
    if shape.rope_switch:
        reaches += (
            f" In texts of more than {counted(shape.rope_switch, 'token')} the model rotates all "
            "positions by other factors (longrope): a run that grows beyond computes its rows "
            "again, once."
        )
    if not reaches:
        return ""
    return (
        f"KV rows are shared between paths, {human_bytes(shape.row_bytes)} for each token.{reaches}"
    )


def reach_words(shape: KVShape) -> str:
    """How far back those layers read that do not read everything; each sentence follows a space.

    All rows are kept; transformers' own cache would keep only those that can still be read.
    """
    counts: dict[Reach, int] = {}
    for layer in range(shape.layers):
        reach = shape.layer(layer).reach
        counts[reach] = counts.get(reach, 0) + 1
    counts.pop(EVERYTHING, None)
    return "".join(
        f" {_share(count, shape)} {'reads' if count == 1 else 'read'} only {_reach(reach)}, but "
        "all rows are kept."
        for reach, count in counts.items()
    )


def _share(count: int, shape: KVShape) -> str:
    if count == shape.layers:
        return "The attention layer" if count == 1 else f"All {count} attention layers"
    return f"{count} of {counted(shape.layers, 'attention layer')}"


def _reach(reach: Reach) -> str:
    if not reach.window:
        return f"the latest chunk of {counted(reach.chunk, 'token')}"
    return f"the last {counted(reach.window, 'token')}"


class TransformersModel(LanguageModel):
    """A transformers LanguageModel without its forward pass."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        context: int,
        stored: StoredWeights,
    ) -> None:
        """Take over a loaded model.

        Args:
            context: Number of positions that it can tell apart.
        """
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._texts, self._encode = TokenTexts(tokenizer), PromptEncoder(tokenizer)
        self._name, self.stored, self.context = name, stored, context
        text_config = model.config.get_text_config()
        self.recommended = recommended_settings(name, model.generation_config)
        self.stop_ids = stop_ids_of(model.generation_config, text_config, tokenizer)

    def _describe(self, shape: KVShape, sha256: str, rows: tuple[LayerRow, ...] = ()) -> None:
        """Set the KV shape and the model card.

        Args:
            sha256: Hash of the weight files.
            rows: What each layer stores, if layers differ.
        """
        config = self._model.config.get_text_config()
        self.kv_shape = shape
        self.is_given = not sha256  # whether others may hold the model, and change it
        self.card = ModelCard(
            name=self._name,
            family=str(config.model_type),
            vocab_size=int(config.vocab_size),
            layers=shape.layers,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            dtype=str(shape.dtype).removeprefix("torch."),
            device=str(shape.device),
            row_bytes=shape.row_bytes,
            weights=self.stored.weights,
            layout=self.stored.layout,
            sha256=sha256,
            layer_rows=rows,
            attention=rows_words(shape) if shape.own is None else "",
            window_rows=tuple(starmap(WindowRows, sorted(shape.window_bytes.items()))),
            thinking=markers_in(str(self._tokenizer.chat_template)),
        )

    def fingerprint(self, exact: bool = True) -> str:
        return fingerprint(self._model, exact)

    @property
    def weight_bytes(self) -> Mapping[str, int]:
        """Bytes of the weights by kind, from the tensors (see eab.engine.models.weights)."""
        return bytes_by_kind(self._model)

    @property
    def weight_matrices(self) -> Mapping[str, nn.Module]:
        """The modules that hold the weight matrices (see eab.engine.models.weights)."""
        return matrix_modules(self._model)

    def encode(
        self, prompt: Prompt, config: BranchingConfig = START, parse_special: bool = False
    ) -> tuple[int, ...]:
        return self._encode(self.card.name, prompt, config, parse_special)

    def encode_following(self, text: str) -> tuple[int, ...]:
        return self._encode.following(text)

    def text(self, token: int) -> str:
        return self._texts[token]

    def is_special(self, token: int) -> bool:
        return self._texts.is_special(token)

    @property
    def _max_error(self) -> float:
        return max_error(self._model, self.stored)


def tokens_to_check(count: int, vocab_size: int) -> list[int]:
    """A text for the checks during loading."""
    return [(7 + 31 * index) % vocab_size for index in range(count)]


def max_error(model: PreTrainedModel, stored: StoredWeights) -> float:
    """How much rounding may change a logit, relative to the largest logit.

    Rounded weights and activations amplify a rounding error of attention. Eight-bit inputs do so in
    every layer: 0.17 was measured for SmolLM2, which has thirty layers.
    """
    if stored.weights == "int8":
        return 0.3
    precise = model.dtype in (torch.float32, torch.float64)
    return 1e-3 if precise and stored.weights == AS_LOADED else 0.1


def stop_ids_of(*sources: Any) -> frozenset[int]:
    """All token ids that end a text; each source, such as a generation config, may list several."""
    stop_ids: set[int] = set()
    for ids in (getattr(source, "eos_token_id", None) for source in sources):
        stop_ids.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return frozenset(stop_ids)
