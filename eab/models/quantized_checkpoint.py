"""Checkpoints whose weights another library has quantized, and whether the engine can run them."""

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from eab.errors import ModelError

NEIGHBOUR_SCALE: Final = (
    30.0  # ratio of neighbours to the row: reveals a scale or mask shared by all rows
)
_NEIGHBOURS: Final = 7
# Float products differ in the last bits with the number of rows; int8 rounding is off by 1%.
_TOLERANCE: Final = {torch.float64: 1e-3, torch.float32: 1e-3}
_TOLERANCE_IN_16_BITS: Final = 5e-3


def quantized_by(model: PreTrainedModel) -> str:
    """The method with which the checkpoint is quantized; empty if it is not."""
    config = getattr(model.config, "quantization_config", None)
    method = (
        config.get("quant_method") if isinstance(config, dict) else config and config.quant_method
    )
    return str(getattr(method, "value", method)) if method else ""


@torch.inference_mode()
def refuse_dependent_rows(model: PreTrainedModel, method: str) -> None:
    """Refuse a model in which a row depends on the other rows; called after a first forward pass.

    All live paths share a forward pass, so a text would depend on its siblings. bitsandbytes in
    eight bits does this: an input column that is large in one row is multiplied in 16 bits for all
    rows (Dettmers et al., LLM.int8(), 2022, arXiv 2208.07339, section 3.2).
    """
    for layer in _one_of_each(model):
        change = _change_beside_others(layer, model.device, model.dtype)
        if not change <= _TOLERANCE.get(model.dtype, _TOLERANCE_IN_16_BITS):
            advice = "Choose another method"
            if method == "bitsandbytes":
                advice = "Save it again with llm_int8_threshold=0"
            raise ModelError(
                f"the weights are already quantized ({method}), and the result of a row in "
                f"{type(layer).__name__} changes by {change:.1%} with other rows in the batch, so "
                f"a text would depend on its siblings. {advice}, or load the original model"
            )


def _one_of_each(model: nn.Module) -> Iterator[nn.Module]:
    """One layer of every kind and shape that multiplies rows by a matrix."""
    seen = set()
    for layer in model.modules():
        kind = (type(layer), getattr(layer, "in_features", 0), getattr(layer, "out_features", 0))
        if all(kind) and kind not in seen:
            seen.add(kind)
            yield layer


def _change_beside_others(layer: nn.Module, device: torch.device, dtype: torch.dtype) -> float:
    """How much a row's result changes beside much larger rows, relative to its norm."""
    generator = torch.Generator().manual_seed(0)
    size = 1, 1 + _NEIGHBOURS, int(layer.in_features)  # type: ignore[arg-type]
    rows = torch.randn(size, generator=generator)
    rows[:, 1:] *= NEIGHBOUR_SCALE
    rows = rows.to(device, dtype)
    alone: Tensor = layer(rows[:, :1]).float()
    together: Tensor = layer(rows)[:, :1].float()
    return float((together - alone).norm() / alone.norm().clamp(min=1e-12))
