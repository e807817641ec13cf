"""Weight layouts for CPU inference: the same numbers stored so that a product with few rows runs
faster.

A decode step multiplies every weight matrix with one row per live path. How fast that is depends on
how the matrix library likes the weights stored, which differs between processors; so the layouts
are tried on the loaded model's own matrices, more of them than the processor's caches hold, and one
that is clearly faster replaces the weights. None is held twice, except those of an output layer
that shares them with the input embedding, where memory allows.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

PATHS_TRIED: Final = (1, 8, 20, 64)
BYTES_TRIED: Final = (
    64 * 2**20
)  # of weights: in a step they come from memory, and so they must here
REPEATS: Final = 3
CLEARLY_FASTER: Final = 0.85  # of the plain time
SMALLEST: Final = (
    30_000_000  # weights; below, a step is bound by other things, and its rounding should not vary
)
MEMORY_SHARE: Final = 0.25  # of the free memory, for a second copy of tied output weights


class PackedLinear(nn.Module):
    """A linear layer whose weight oneDNN has reordered into blocks; computes what nn.Linear
    computes.
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


def k_major(linear: nn.Linear) -> nn.Linear:
    """A linear layer whose weight is stored as its transpose, so that the product meets contiguous
    rows of it.
    """
    turned = nn.Linear(linear.in_features, linear.out_features, bias=False, device="meta")
    turned.weight = nn.Parameter(linear.weight.detach().t().contiguous().t(), requires_grad=False)
    turned.bias = linear.bias
    return turned


Layout = Callable[[nn.Linear], nn.Module]
LAYOUTS: Final[dict[str, Layout]] = {"packed": PackedLinear, "k-major": k_major}


def take_fastest_layout(model: nn.Module) -> str:
    """Measure the layouts on `model`'s own matrices (one or two seconds), apply the fastest -> its
    name, or `plain`.

    Small models, other devices than the CPU and other types than float32 stay as they are.
    """
    linears = _linears(model)
    weights = sum(linear.weight.numel() for linear in linears.values())
    if weights < SMALLEST or any(
        not _is_plain_float32(linear.weight) for linear in linears.values()
    ):
        return "plain"
    name = fastest([*linears.values()])
    if name != "plain":
        _apply(model, linears, LAYOUTS[name])
    return name


@torch.inference_mode()
def fastest(linears: Sequence[nn.Linear]) -> str:
    """The name of the layout in which some of these layers are clearly faster than as loaded, or
    `plain`.
    """
    some = _spread(linears)
    inputs = [
        {linear.in_features: torch.randn(1, paths, linear.in_features) for linear in some}
        for paths in PATHS_TRIED
    ]
    found = {"plain": CLEARLY_FASTER}
    for name, layout in LAYOUTS.items():
        try:
            layers = [layout(linear) for linear in some]
            same = all(_same(linear, layer) for linear, layer in zip(some, layers, strict=True))
        except (RuntimeError, AttributeError):
            continue  # this build of PyTorch does not have it
        if same:
            found[name] = statistics.geometric_mean(
                _time_ratio(some, layers, rows) for rows in inputs
            )
    return min(found, key=lambda name: found[name])


def _spread(linears: Sequence[nn.Linear]) -> Sequence[nn.Linear]:
    """Layers from all over the model, about BYTES_TRIED of weights."""
    total = sum(linear.weight.nbytes for linear in linears)
    return linears[:: max(1, round(total / BYTES_TRIED))]


def _same(linear: nn.Linear, layer: nn.Module) -> bool:
    x = torch.randn(1, PATHS_TRIED[-1], linear.in_features)
    return torch.allclose(layer(x), linear(x), rtol=1e-3, atol=1e-4)


def _time_ratio(
    plain: Sequence[nn.Linear], layers: Sequence[nn.Module], inputs: Mapping[int, Tensor]
) -> float:
    """Median time of `layers` over that of `plain`, measured in turns. inputs: by number of input
    features.
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


def _is_plain_float32(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32


def _apply(model: nn.Module, linears: dict[str, nn.Linear], layout: Layout) -> None:
    """Replace the layers one by one, so that at most one matrix is held twice on the way."""
    embeddings = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    for name, linear in linears.items():
        if id(linear.weight) in embeddings and linear.weight.nbytes > MEMORY_SHARE * _free_memory():
            continue
        model.set_submodule(name, layout(linear))


def _free_memory() -> int:
    """Bytes that are free now; without an answer from the system none, so that nothing is held
    twice.
    """
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
