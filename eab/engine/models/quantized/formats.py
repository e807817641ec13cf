"""Which layers a weight format uses, where they work, and how to apply them to a model."""

import inspect
import re
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Final, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from eab.engine.models.quantized.integers import Int4Linear, Int8Linear, Int8WeightOnlyLinear
from eab.engine.models.quantized.layer import (
    BFloat16Linear,
    NF4DoubleQuantLinear,
    NF4Linear,
    QuantizedLinear,
)
from eab.errors import ModelError


class Format(NamedTuple):
    """The layer classes of a weight format."""

    layer: type[QuantizedLinear]  # for the linear layers
    # For the output layer, whose rounding reaches every logit; None leaves it as loaded
    output: type[QuantizedLinear] | None
    # Allowed relative error of a product. A larger error shows that the operators do not work on
    # this machine.
    error: float
    anywhere: bool = False  # whether it runs on any device, not only on the CPU


FORMATS: Final[Mapping[str, Format]] = {
    "bfloat16": Format(BFloat16Linear, BFloat16Linear, 0.01),
    "int8": Format(Int8Linear, Int8Linear, 0.03),
    "int8-weight-only": Format(Int8WeightOnlyLinear, Int8WeightOnlyLinear, 0.02),
    "int4": Format(Int4Linear, Int8Linear, 0.15),
    "nf4": Format(NF4Linear, None, 0.15, anywhere=True),
    "nf4-double-quant": Format(NF4DoubleQuantLinear, None, 0.15, anywhere=True),
}


def refuse_if_unusable(name: str, device: torch.device) -> None:
    """Refuse a weight format that this device or machine cannot use."""
    form = FORMATS[name]
    if not form.anywhere and device.type != "cpu":
        others = [other for other, form in FORMATS.items() if form.anywhere]
        raise ModelError(
            f"the weights are {name!r}, which runs on the CPU only, and the device is "
            f"{device.type!r}. Choose {' or '.join(others)}, or device cpu"
        )
    for layer in {form.layer, form.output} - {None}:
        if reason := _fault(layer, form.error, device):
            raise ModelError(
                f"the weights are {name!r}, which this machine cannot compute: {reason}. "
                "Choose as-loaded or nf4"
            )


def quantize(
    model: PreTrainedModel, form: Format, device: torch.device | None = None
) -> tuple[str, ...]:
    """Store the weights of all linear layers in this format, one layer at a time, so that at most
    one is held twice.

    An output layer that shares its weights with the input embedding becomes a copy; the embedding
    stays as it is, as do norms and biases. Each layer is moved to `device`, unless that is None.

    Returns:
        The names of the linear layers that stay as loaded: because of their shape, because the
            format excludes them, or because the model's own code reads their weights.
    """
    kept, as_loaded = [], read_by_code(model)
    # Only names are kept: a reference to a layer would keep its loaded weights in memory.
    paths = [path for path, module in model.named_modules() if type(module) in (nn.Linear, Conv1D)]
    for path in paths:
        is_output = model.get_submodule(path) is model.get_output_embeddings()
        kind = form.output if is_output else form.layer
        if path in as_loaded:
            kind = None
        if kind is None or not kind.fits(_as_linear(model.get_submodule(path))):
            kept.append(path)
            continue
        _replace(model, path, kind, device)
    return tuple(kept)


def _replace(
    model: nn.Module, path: str, kind: type[QuantizedLinear], device: torch.device | None
) -> None:
    linear = _as_linear(model.get_submodule(path), device)
    with torch.inference_mode():
        model.set_submodule(path, kind(linear))


def _as_linear(module: nn.Module, device: torch.device | None = None) -> nn.Linear:
    """A linear layer with the same weights, moved to `device` unless that is None. GPT-2's Conv1D
    stores its weight transposed.
    """
    weight, bias = cast(Tensor, module.weight), cast(Tensor | None, module.bias)
    weight = weight.detach() if isinstance(module, nn.Linear) else weight.detach().t()
    linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    linear.weight = nn.Parameter(weight.to(device), requires_grad=False)
    if bias is None:
        linear.register_parameter("bias", None)
    else:
        linear.bias = nn.Parameter(bias.to(device), requires_grad=False)
    return linear


@cache
@torch.inference_mode()
def _fault(layer: type[QuantizedLinear], error: float, device: torch.device) -> str:
    """Why layers of this kind cannot be used on this machine; empty if they can.

    Weights and inputs at the largest value reveal integer units that saturate.
    """
    size, generator = 4864, torch.Generator().manual_seed(0)
    linear = nn.Linear(size, 64, bias=False)
    for weight, x in (
        [torch.randn(64, size, generator=generator), torch.randn(70, size, generator=generator)],
        [torch.ones(64, size), torch.ones(70, size)],
    ):
        linear.weight = nn.Parameter(weight.to(device), requires_grad=False)
        try:
            ours = layer(linear)
            together, alone = ours(x.to(device)).cpu(), ours(x[-1:].to(device)).cpu()
        except (RuntimeError, AttributeError, NotImplementedError) as missing:
            return f"PyTorch lacks it ({str(missing).strip().splitlines()[0]})"
        plain = x @ weight.t()
        difference = ((together - plain).norm() / plain.norm()).item()
        if not difference < error:
            return f"its products are wrong by {difference:.0%}"
        if not torch.equal(together[-1:], alone):
            return "the result of a row depends on the other rows of the batch"
    return ""


_READ: Final = re.compile(r"self\.(\w+)\.weight\b(?!\.(?:dtype|device|shape|size)|\s*=[^=])")


def read_by_code(model: nn.Module) -> frozenset[str]:
    """The names of the linear layers whose weight the model's own code reads directly, as in Mamba.
    They stay as loaded: other code cannot use a packed or quantized weight as a matrix.
    """
    return frozenset(
        f"{path}.{name}" if path else name
        for path, parent in model.named_modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and name in _read_by(cast(Hashable, type(parent)))
    )


@cache
def _read_by(kind: Hashable) -> frozenset[str]:
    """The layers whose weight the code of this class reads, other than its dtype or size."""
    try:
        code = inspect.getsource(cast(type, kind))
    except (OSError, TypeError):
        return frozenset()
    if "pretraining_tp" in code:  # read only with this setting, which no model uses
        return frozenset()
    return frozenset(_READ.findall(code))
