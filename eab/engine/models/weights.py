"""How the weights of a loaded model are stored, how many bytes they take, in which layout, and
whether they are still the same.

A decode step multiplies every weight matrix by one row per live path. Two layouts make this faster
on a CPU: tiles of our own products, where these can be compiled, and elsewhere the blocks of
oneDNN. The rule is fixed, because a layout changes the rounding of the last bits, and the same seed
should give the same texts. No weights are held twice, except those of an output layer that shares
them with the input embedding, if there is enough memory; tiled, the two still share them.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from eab.engine import compiled
from eab.engine.models.machine import free_memory
from eab.engine.models.quantized.formats import FORMATS, quantize, read_by_code
from eab.engine.models.quantized.layer import QuantizedLinear
from eab.errors import ModelError
from eab.weight_formats import AS_LOADED, AUTO, PLAIN, PREPACKED, TILED

if TYPE_CHECKING:
    from eab.engine.compiled.products import Part
    from eab.engine.compiled.weights import Float32Weights

# Fewest weights of a model in another layout: below, calling the product takes most of its time.
MIN_WEIGHTS: Final = 1_000_000
MEMORY_SHARE: Final = 0.25  # of the free memory, for a second copy of tied output weights


class ReorderedLinear(nn.Module, ABC):
    """An nn.Linear whose weight is stored in another order."""

    weight: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features

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
        loaded = None if linear.bias is None else linear.bias.detach()
        weight, bias = _products().pack(linear.weight.detach(), loaded)
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    def part(self) -> "Part":
        """The layer for `eab.engine.compiled.products`."""
        return _products().part(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        out = _products().product(x, self.weight, self.bias)
        outputs = self.out_features
        return out if out.shape[-1] == outputs else out[..., :outputs]


class TiledEmbedding(nn.Embedding):
    """An nn.Embedding that looks its vectors up in the tiled weight of the output layer."""

    def __init__(self, output: TiledLinear) -> None:
        super().__init__(output.out_features, output.in_features, device="meta")
        del self.weight
        self.register_buffer("weight", output.weight, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (...) -> (..., embedding_dim)."""
        return _products().columns(self.weight, ids)


@cache
def _products() -> "Float32Weights":
    from eab.engine.compiled.weights import FLOAT32  # needs llvmlite

    return FLOAT32


Layout = Callable[[nn.Linear], nn.Module]
LAYOUTS: Final[dict[str, Layout]] = {TILED: TiledLinear, PREPACKED: PrepackedLinear}


def best_layout(model: nn.Module) -> str:
    """The name of the fastest layout for this model on this machine.

    Devices other than the CPU and dtypes other than float32 stay as they are.
    """
    linears = _linears(model)
    weights = sum(linear.weight.numel() for linear in linears.values())
    if weights < MIN_WEIGHTS or not _all_cpu_float32(linears):
        return PLAIN
    if compiled.can_compile():
        return TILED
    return PREPACKED if _can_prepack() else PLAIN


def _can_prepack() -> bool:
    """Whether oneDNN has products for this processor; elsewhere it refuses, or is slower."""
    return torch.backends.mkldnn.is_available() and compiled.has_instructions("avx2")


def apply_layout(model: nn.Module, name: str) -> str:
    """Apply the layout with this name, and return it.

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
    embeddings = [
        path for path, module in model.named_modules() if isinstance(module, nn.Embedding)
    ]
    for path in [*_linears(model)]:
        linear = cast(nn.Linear, model.get_submodule(path))
        tied = [
            embedding
            for embedding in embeddings
            if model.get_submodule(embedding).weight is linear.weight
        ]
        stay_tied = name == TILED and all(
            type(model.get_submodule(embedding)) is nn.Embedding for embedding in tied
        )
        if tied and not stay_tied and linear.weight.nbytes > MEMORY_SHARE * free_memory():
            continue
        layer = LAYOUTS[name](linear)
        model.set_submodule(path, layer)
        if isinstance(layer, TiledLinear) and stay_tied:
            for embedding in tied:
                model.set_submodule(embedding, TiledEmbedding(layer))


_KINDS: Final = (nn.Linear, nn.Embedding, Conv1D, ReorderedLinear)


def matrix_modules(model: nn.Module) -> Mapping[str, nn.Module]:
    """The linear layers and embeddings that are not quantized, by name."""
    return {name: module for name, module in model.named_modules() if _is_matrix(module)}


def _is_matrix(module: nn.Module) -> bool:
    """Whether it holds floats; quantized layers of other libraries hold packed integers."""
    weight = getattr(module, "weight", None)
    return isinstance(module, _KINDS) and weight is not None and weight.is_floating_point()


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
        ModelError: The layout is not available.
    """
    if weights != AS_LOADED:
        return StoredWeights(weights, kept=quantize(model, FORMATS[weights], device))
    return StoredWeights(
        layout=apply_layout(model, best_layout(model) if layout == AUTO else layout)
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


# Attributes of PEFT's layers that decide what they compute
_OF_ADAPTERS: Final = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")


def fingerprint(model: nn.Module, exact: bool = True) -> str:
    """A hash of the weights and of the adapters in use: it tells a model that was given loaded from
    another, and from itself before it was changed. With hooks or replaced methods, which may do
    anything, it is another one each time.

    Args:
        exact: Whether to read all weights. Otherwise weights count as changed if they were replaced
            or changed in place, other than through `.data`.
    """
    digest = hashlib.sha256()
    for name, module in model.named_modules():
        adapters = [vars(module).get(attribute) for attribute in _OF_ADAPTERS]
        digest.update(repr((name, type(module).__qualname__, adapters)).encode())
        if is_watched(module):
            digest.update(os.urandom(16))
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        version = 0 if exact or tensor.is_inference() else tensor._version
        place = 0 if exact else tensor.data_ptr()
        digest.update(repr((name, tensor.shape, tensor.dtype, place, version)).encode())
        if exact:
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def is_watched(module: nn.Module) -> bool:
    """Whether code of others runs in the module."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    ours = all(str(getattr(hook, "__module__", "")).startswith("eab.") for hook in hooks)
    return not ours or ("forward" in vars(module) and not hasattr(module, "_hf_hook"))
