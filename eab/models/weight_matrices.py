"""The weight matrices of a loaded model, by name, for display."""

from collections.abc import Mapping
from typing import Final

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from eab.models.weight_layouts import ReorderedLinear, TiledEmbedding

_KINDS: Final = (nn.Linear, nn.Embedding, Conv1D, ReorderedLinear)


def matrix_modules(model: nn.Module) -> Mapping[str, nn.Module]:
    """The linear layers and embeddings that are not quantized, by name."""
    return {name: module for name, module in model.named_modules() if _is_matrix(module)}


def _is_matrix(module: nn.Module) -> bool:
    """Whether it holds floats; quantized layers of other libraries hold packed integers."""
    weight = getattr(module, "weight", None)
    return isinstance(module, _KINDS) and weight is not None and weight.is_floating_point()


def matrix_of(module: nn.Module) -> Tensor:
    """The weight of one of these modules, (out, in) float32 on the CPU."""
    if isinstance(module, ReorderedLinear | TiledEmbedding):
        return module.matrix().float().cpu().contiguous()
    weight: Tensor = module.weight.detach()  # type: ignore[operator]
    if isinstance(module, Conv1D):  # GPT-2 stores it transposed
        weight = weight.t()
    return weight.float().cpu().contiguous()
