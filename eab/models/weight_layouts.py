"""Weight layouts for CPU inference: the same values, stored for faster products with few rows.

A decode step multiplies every weight matrix by one row per live path. The best layout depends on
the matrix library and the processor. So the layouts are timed on matrices of the loaded model, more
than fit into the processor's caches, until one is certainly the fastest. A layout that is clearly
faster replaces the weights, and is remembered for models with the same shapes on this machine. No
weights are held twice, except those of an output layer that shares them with the input embedding,
if there is enough memory; tiled, the two still share them.
"""

import statistics
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

import torch
from torch import Tensor, nn

from eab import compiled
from eab.errors import ModelError
from eab.models import layout_memory
from eab.models.machine import describe_machine, free_memory
from eab.models.read_weights import read_by_code
from eab.timing import Measure, Timing, fastest, is_settled, take_turns_until_settled, timed
from eab.weight_formats import PLAIN, TILED

if TYPE_CHECKING:
    from eab.compiled.products import Part

BATCH_SIZES: Final = (1, 8, 20, 64)  # live paths
# Bytes of weights to time: a decode step reads weights from memory, so the measurement must, too.
BYTES_TIMED: Final = 64 * 2**20
MAX_SECONDS: Final = 6.0  # to measure; one or two are enough on a quiet machine
MAX_TIME_RATIO: Final = 0.85  # layout time over plain time, to be clearly faster
# Fewest weights of a model to measure: below, rounding should not vary with the noise of timings.
MIN_WEIGHTS: Final = 30_000_000
# Fewest weights to be tiled without measuring: below, calling the product takes most of its time.
MIN_TILED: Final = 1_000_000
MEMORY_SHARE: Final = 0.25  # of the free memory, for a second copy of tied output weights


class ReorderedLinear(nn.Module, ABC):
    """An nn.Linear whose weight is stored in another order."""

    weight: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features

    @abstractmethod
    def matrix(self) -> Tensor:
        """The weight, (out, in)."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""


class PrepackedLinear(ReorderedLinear):
    """Its weight is prepacked: oneDNN has reordered it into blocks."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self.register_buffer("weight", weight, persistent=False)
        self.bias = linear.bias

    def matrix(self) -> Tensor:
        return self.weight.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out


class TiledLinear(ReorderedLinear):
    """Its product is compiled for this processor; the result of a row is the same in any batch."""

    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        if not compiled.can_compile():
            raise RuntimeError("nothing can be compiled for this processor")
        bias = None if linear.bias is None else linear.bias.detach()
        weight, bias = _products().pack(linear.weight.detach(), bias)
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    def matrix(self) -> Tensor:
        matrix: Tensor = _products().unpack(self.weight, self.out_features)
        return matrix

    def part(self) -> "Part":
        """The layer for `eab.compiled.products`."""
        part: Part = _products().part(self.weight, self.bias)
        return part

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _products().product(x, self.weight, self.bias)
        outputs = self.out_features
        return out if out.shape[-1] == outputs else out[..., :outputs]


class TiledEmbedding(nn.Embedding):
    """An nn.Embedding that looks its vectors up in the tiled weight of the output layer."""

    def __init__(self, output: TiledLinear) -> None:
        super().__init__(output.out_features, output.in_features, device="meta")
        del self.weight
        self.register_buffer("weight", output.weight, persistent=False)

    def matrix(self) -> Tensor:
        """The vectors, (num_embeddings, embedding_dim)."""
        matrix: Tensor = _products().unpack(self.weight, self.num_embeddings)
        return matrix

    def forward(self, ids: Tensor) -> Tensor:
        """ids (...) -> (..., embedding_dim)."""
        vectors: Tensor = _products().columns(self.weight, ids)
        return vectors


@cache
def _products() -> ModuleType:
    from eab.compiled import float32  # needs llvmlite

    return float32


def transpose_weight(linear: nn.Linear) -> nn.Linear:
    """A linear layer with its weight stored transposed, so that the product reads whole rows."""
    transposed = nn.Linear(linear.in_features, linear.out_features, bias=False, device="meta")
    weight = linear.weight.detach().t().contiguous().t()
    transposed.weight = nn.Parameter(weight, requires_grad=False)
    transposed.bias = linear.bias
    return transposed


Layout = Callable[[nn.Linear], nn.Module]
LAYOUTS: Final[dict[str, Layout]] = {
    TILED: TiledLinear,
    "prepacked": PrepackedLinear,
    "transposed": transpose_weight,
}


def apply_fastest_layout(model: nn.Module) -> str:
    """Apply the fastest layout for this model on this machine, and return its name.

    The first time, the layouts of a large model are measured, which takes a second or two. Devices
    other than the CPU and dtypes other than float32 stay as they are.
    """
    name = _fastest_layout(_linears(model))
    _apply(model, name)
    return name


def _fastest_layout(linears: Mapping[str, nn.Linear]) -> str:
    weights = sum(linear.weight.numel() for linear in linears.values())
    if weights < MIN_TILED or not _all_cpu_float32(linears):
        return PLAIN
    if weights < MIN_WEIGHTS:
        return TILED if compiled.can_compile() else PLAIN
    return _remembered_or_measured(linears)


def _remembered_or_measured(linears: Mapping[str, nn.Linear]) -> str:
    key = _measured_case(linears)
    name = layout_memory.recall(key)
    if name not in (PLAIN, *LAYOUTS):
        timings = measure_layouts([*linears.values()])
        name = clearly_fastest(timings)
        if is_settled(timings):
            layout_memory.remember(key, name)
    return name


def apply_layout(model: nn.Module, name: str) -> str:
    """Apply the layout with this name, without measuring.

    Raises:
        ModelError: The layout is for float32 weights on the CPU, and these are not; or it does not
            work here.
    """
    if name != PLAIN and not _all_cpu_float32(_linears(model)):
        raise ModelError(
            f"the layout is {name!r}; it works only for float32 weights on the CPU. Choose auto "
            f"or {PLAIN}"
        )
    try:
        _apply(model, name)
    except (RuntimeError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"the layout is {name!r}, which does not work here ({reason}). Choose auto"
        ) from error
    return name


@torch.inference_mode()
def measure_layouts(linears: Sequence[nn.Linear]) -> dict[str, Timing]:
    """Time a sample of these layers in every layout that works here, until one is certainly the
    fastest.

    Returns:
        By layout: the seconds of one product with each layer of the sample, as the geometric mean
            over the batch sizes.
    """
    sample = _sample(linears)
    measures = {PLAIN: _measure(sample)}
    for name, layout in LAYOUTS.items():
        try:
            layers = [layout(linear) for linear in sample]
            same = all(_agree(linear, layer) for linear, layer in zip(sample, layers, strict=True))
        except (RuntimeError, AttributeError):
            continue
        if same:
            measures[name] = _measure(layers)
    return take_turns_until_settled(measures, MAX_SECONDS)


def clearly_fastest(timings: Mapping[str, Timing]) -> str:
    """The fastest layout if it is clearly faster than the plain one, else `plain`."""
    name = fastest(timings)
    clearly = timings[name].median <= MAX_TIME_RATIO * timings[PLAIN].median
    return name if clearly else PLAIN


def _sample(linears: Sequence[nn.Linear]) -> Sequence[nn.Linear]:
    """Layers from all parts of the model, with about BYTES_TIMED bytes of weights."""
    total = sum(linear.weight.nbytes for linear in linears)
    return linears[:: max(1, round(total / BYTES_TIMED))]


def _agree(linear: nn.Linear, layer: nn.Module) -> bool:
    x = torch.randn(1, BATCH_SIZES[-1], linear.in_features)
    return torch.allclose(layer(x), linear(x), rtol=1e-3, atol=1e-4)


def _measure(layers: Sequence[nn.Module]) -> Measure:
    """Time the layers in turn, with each number of rows."""

    def run(inputs: Sequence[Tensor]) -> None:
        for layer, x in zip(layers, inputs, strict=True):
            layer(x)

    inputs = [[_input(layer, rows) for layer in layers] for rows in BATCH_SIZES]
    by_rows = [timed(partial(run, rows)) for rows in inputs]
    return lambda: statistics.geometric_mean(measure() for measure in by_rows)


def _input(layer: nn.Module, rows: int) -> Tensor:
    return torch.randn(1, rows, int(layer.in_features))  # type: ignore[arg-type]


def _measured_case(linears: Mapping[str, nn.Linear]) -> str:
    """The machine, the layouts as they are made now and the shapes of the matrices, as a key."""
    shapes = Counter(f"{linear.out_features} x {linear.in_features}" for linear in linears.values())
    sizes = ", ".join(f"{count} of {shape}" for shape, count in sorted(shapes.items()))
    layouts = [name for name in LAYOUTS if name != TILED]
    if compiled.can_compile():
        layouts.append(f"{TILED} by {_products().TILE}")
    return f"{describe_machine()}, {' or '.join(layouts)}: {sizes}"


def _linears(model: nn.Module) -> dict[str, nn.Linear]:
    as_loaded = read_by_code(model)
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and name not in as_loaded
    }


def _all_cpu_float32(linears: Mapping[str, nn.Linear]) -> bool:
    weights = [linear.weight for linear in linears.values()]
    return all(weight.device.type == "cpu" and weight.dtype == torch.float32 for weight in weights)


def _apply(model: nn.Module, name: str) -> None:
    """Replace the layers one at a time, so that at most one matrix is held twice.

    Only names are kept: a reference to a layer would keep its loaded weight in memory.
    """
    if name == PLAIN:
        return
    embeddings = [path for path, one in model.named_modules() if isinstance(one, nn.Embedding)]
    for path in [*_linears(model)]:
        linear = cast(nn.Linear, model.get_submodule(path))
        tied = [one for one in embeddings if model.get_submodule(one).weight is linear.weight]
        stay_tied = name == TILED and all(
            type(model.get_submodule(one)) is nn.Embedding for one in tied
        )
        if tied and not stay_tied and linear.weight.nbytes > MEMORY_SHARE * free_memory():
            continue
        layer = LAYOUTS[name](linear)
        model.set_submodule(path, layer)
        if isinstance(layer, TiledLinear) and stay_tied:
            for one in tied:
                model.set_submodule(one, TiledEmbedding(layer))
