"""How the weights of a loaded model are stored, and how many bytes they take."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from eab.errors import ModelError
from eab.models.quantized.formats import FORMATS, quantize
from eab.models.quantized.layer import QuantizedLinear
from eab.models.quantized_checkpoint import quantized_by
from eab.models.weight_layouts import ReorderedLinear, apply_layout, best_layout
from eab.weight_formats import AS_LOADED, AUTO, PLAIN


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """How the weights of a model are stored."""

    weights: str = AS_LOADED
    layout: str = PLAIN
    # The linear layers that stayed as loaded in spite of another format
    kept: tuple[str, ...] = ()


AS_LOADED_WEIGHTS: Final = StoredWeights()


def store_weights(
    model: PreTrainedModel, weights: str, layout: str, device: torch.device | None = None
) -> StoredWeights:
    """Store the weights of a loaded model in this format or layout (see eab.weight_formats).

    Quantized linear layers are moved to the device one by one; with None, they stay where they are.

    Raises:
        ModelError: The checkpoint is already quantized, or the layout is not available.
    """
    if method := quantized_by(model):
        refuse_other_storage(method, weights, layout)
        return AS_LOADED_WEIGHTS
    if weights != AS_LOADED:
        return StoredWeights(weights, kept=quantize(model, FORMATS[weights], device))
    return StoredWeights(
        layout=apply_layout(model, best_layout(model) if layout == AUTO else layout)
    )


def refuse_other_storage(method: str, weights: str, layout: str) -> None:
    """Refuse to store the weights of a quantized checkpoint in another format or layout."""
    if weights != AS_LOADED or layout not in (AUTO, PLAIN):
        raise ModelError(
            f"the weights of this model are already quantized ({method}) and cannot be "
            f"stored as weights {weights!r} with layout {layout!r}; choose weights {AS_LOADED} "
            f"and layout {AUTO}"
        )


def bytes_by_kind(model: nn.Module) -> Mapping[str, int]:
    """Bytes of the tensors: linear layers, embeddings, and the rest (norms and biases).

    A tensor with two owners, such as an output layer tied to the embedding, counts once, as an
    embedding.
    """
    kinds: defaultdict[str, int] = defaultdict(int)
    seen: set[int] = set()
    order = sorted(model.modules(), key=lambda module: not isinstance(module, nn.Embedding))
    for module in order:
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        for tensor in tensors:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                kinds[_kind(module, tensor is getattr(module, "bias", None))] += tensor.nbytes
    return dict(kinds)


def _kind(module: nn.Module, is_bias: bool) -> str:
    if isinstance(module, nn.Embedding):
        return "embeddings"
    ours = isinstance(module, nn.Linear | Conv1D | ReorderedLinear | QuantizedLinear)
    is_linear = ours or hasattr(module, "in_features")  # from another library
    return "linear layers" if is_linear and not is_bias else "norms and biases"
