"""Weight layouts for CPU inference: the same numbers, stored so that a product with few rows runs
faster.

A decode step multiplies every weight matrix by one row per live path. The best layout for that
depends on the matrix library and differs between processors. So the layouts are timed on matrices
of the loaded model, on more of them than the processor's caches hold, and one that is clearly
faster replaces the weights. No weights are held twice, except those of an output layer that shares
them with the input embedding, if there is enough memory.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

PLAIN: Final = "plain"
BATCH_SIZES: Final = (1, 8, 20, 64)  # live paths
# Of weights to time: a decode step reads weights from memory, so the measurement must, too.
BYTES_TIMED: Final = 64 * 2**20
REPEATS: Final = 3
MAX_TIME_RATIO: Final = 0.85  # of a layout's time to the plain time, to be clearly faster
# Weights of a model. Below, other things limit a step, and its rounding should not vary.
MIN_WEIGHTS: Final = 30_000_000
MEMORY_SHARE: Final = 0.25  # of the free memory, for a second copy of tied output weights


class PrepackedLinear(nn.Module):
    """A linear layer whose weight is prepacked: oneDNN has reordered it into blocks. It computes
    what nn.Linear computes.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out


def transpose_weight(linear: nn.Linear) -> nn.Linear:
    """A linear layer whose weight is stored as its transpose, so that the product reads contiguous
    rows of it.
    """
    transposed = nn.Linear(linear.in_features, linear.out_features, bias=False, device="meta")
    transposed.weight = nn.Parameter(
        linear.weight.detach().t().contiguous().t(), requires_grad=False
    )
    transposed.bias = linear.bias
    return transposed


Layout = Callable[[nn.Linear], nn.Module]
LAYOUTS: Final[dict[str, Layout]] = {"prepacked": PrepackedLinear, "transposed": transpose_weight}


def apply_fastest_layout(model: nn.Module) -> str:
    """Time the layouts on the model's own matrices, which takes one or two seconds, and apply the
    fastest one.

    Small models, devices other than the CPU and dtypes other than float32 stay as they are.

    Returns:
        The name of the layout; `plain` if the model was not changed.
    """
    linears = _linears(model)
    weights = sum(linear.weight.numel() for linear in linears.values())
    if weights < MIN_WEIGHTS or any(
        not _is_cpu_float32(linear.weight) for linear in linears.values()
    ):
        return PLAIN
    name = fastest_layout([*linears.values()])
    if name != PLAIN:
        _apply(model, linears, LAYOUTS[name])
    return name


@torch.inference_mode()
def fastest_layout(linears: Sequence[nn.Linear]) -> str:
    """The name of the layout in which a sample of these layers is fastest; `plain` if none is
    clearly faster.
    """
    sample = _sample(linears)
    inputs = [
        {linear.in_features: torch.randn(1, paths, linear.in_features) for linear in sample}
        for paths in BATCH_SIZES
    ]
    ratios = {PLAIN: MAX_TIME_RATIO}
    for name, layout in LAYOUTS.items():
        try:
            layers = [layout(linear) for linear in sample]
            same = all(_agree(linear, layer) for linear, layer in zip(sample, layers, strict=True))
        except (RuntimeError, AttributeError):
            continue  # this build of PyTorch does not have it
        if same:
            ratios[name] = statistics.geometric_mean(
                _time_ratio(sample, layers, rows) for rows in inputs
            )
    return min(ratios, key=lambda name: ratios[name])


def _sample(linears: Sequence[nn.Linear]) -> Sequence[nn.Linear]:
    """Layers from all parts of the model, with about BYTES_TIMED of weights."""
    total = sum(linear.weight.nbytes for linear in linears)
    return linears[:: max(1, round(total / BYTES_TIMED))]


def _agree(linear: nn.Linear, layer: nn.Module) -> bool:
    x = torch.randn(1, BATCH_SIZES[-1], linear.in_features)
    return torch.allclose(layer(x), linear(x), rtol=1e-3, atol=1e-4)


def _time_ratio(
    plain: Sequence[nn.Linear], layers: Sequence[nn.Module], inputs: Mapping[int, Tensor]
) -> float:
    """Median time of `layers` divided by that of `plain`, measured alternately.

    Args:
        plain: The layers as loaded.
        layers: The same layers in another layout.
        inputs: By number of input features.
    """
    rows = [inputs[linear.in_features] for linear in plain]
    both = [(_seconds(plain, rows), _seconds(layers, rows)) for _ in range(REPEATS + 1)][1:]
    return statistics.median(own for _, own in both) / statistics.median(base for base, _ in both)


def _seconds(layers: Sequence[nn.Module], rows: Sequence[Tensor]) -> float:
    start = time.perf_counter()
    for layer, x in zip(layers, rows, strict=True):
        layer(x)
    return time.perf_counter() - start


def _linears(model: nn.Module) -> dict[str, nn.Linear]:
    return {name: module for name, module in model.named_modules() if type(module) is nn.Linear}


def _is_cpu_float32(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32


def _apply(model: nn.Module, linears: dict[str, nn.Linear], layout: Layout) -> None:
    """Replace the layers one after the other, so that at most one matrix is held twice
    meanwhile.
    """
    embeddings = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    for name, linear in linears.items():
        if id(linear.weight) in embeddings and linear.weight.nbytes > MEMORY_SHARE * _free_memory():
            continue
        model.set_submodule(name, layout(linear))


def _free_memory() -> int:
    """Bytes that are free now; 0 if the system does not say, so that no weights are held twice."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
