"""Decoder layers of Llama, Mistral, Qwen2 and Qwen3 in a few calls of compiled code.

transformers computes such a layer by about forty operators. In a decode step on a CPU, those
between the matrix products take a quarter of the time, mostly to be called. So a layer whose
products are compiled takes five calls: the products for query, key and value of normalized rows,
then rotated; attention; the output product, added to the residual; the products for gate and up of
normalized rows; and the product of the gated rows, added to the residual.

Layers are fused only in passes of this project. In the first one, each compares its output with
that of transformers' code, which may change with its version, and stays as it is if they differ.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

from eab import compiled
from eab.models.cache_attention import cache_attention
from eab.models.running_pass import running_batches

if TYPE_CHECKING:
    from eab.compiled.products import HeadNorms, Norm, Part

# How much a row may differ, relative to what the layer adds to it. If inputs are rounded, another
# rounding error of floats may change one by a whole step.
MAX_ERROR: Final = 1e-3
MAX_ERROR_OF_ROUNDED: Final = 0.05


def fuse_layers(model: nn.Module) -> bool:
    """Fuse the layers of a model that can be; returns whether there are any."""
    if not compiled.can_compile():
        return False
    layers = [layer for layer in model.modules() if type(layer) in _FUSED]
    fusible = [(layer, calls) for layer in layers if (calls := _calls_of(layer)) is not None]
    for layer, calls in fusible:
        layer.__class__ = _FUSED[type(layer)]
        layer.calls = calls  # type: ignore[assignment]
    return bool(fusible)


# Hooks of all modules of the process.
_GLOBAL_HOOKS: Final = (
    nn.modules.module._global_forward_hooks,
    nn.modules.module._global_forward_pre_hooks,
)
# Attributes of every module that do not change what it computes. The hooks stay, because other code
# may put another dictionary in their place.
_NEVER_CHANGED: Final = nn.Module().__dict__.keys() - {"_forward_hooks", "_forward_pre_hooks"}


_FORWARD: Final = attrgetter("forward")
_DTYPE: Final = attrgetter("dtype")


class FusedLayer(nn.Module):
    """Stands before the class of a decoder layer, whose modules and weights it uses."""

    agrees: bool | None = None  # whether transformers' code gives the same; None: not yet known
    calls: "FusedCalls | None" = None

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """hidden_states (1, T, hidden) -> (1, T, hidden)."""
        angles = kwargs.get("position_embeddings")
        is_ours = running_batches() is not None and angles is not None
        can_be = is_ours and hidden_states.shape[0] == 1 and self.agrees is not False
        calls = self._current_calls() if can_be else None
        if calls is None:
            plain: Tensor = super().forward(hidden_states, *args, **kwargs)
            return plain
        rows = hidden_states[0]
        output = calls.output(rows, *angles)  # type: ignore[misc]
        if self.agrees:
            return output[None]
        # In this order, the cache keeps K and V of transformers' code.
        expected: Tensor = super().forward(hidden_states, *args, **kwargs)
        limit = MAX_ERROR_OF_ROUNDED if calls.round_inputs else MAX_ERROR
        self.agrees = _is_close(output, expected[0], rows, limit)
        if not self.agrees:
            self.calls = None
        return expected

    def _current_calls(self) -> "FusedCalls | None":
        """The calls for the modules as they are now; None if these cannot be fused."""
        if self.calls is None or not self.calls.are_current():
            self.agrees = None  # the new modules may compute something else
            self.calls = _calls_of(self)
        return self.calls

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Moves or casts the weights, as in nn.Module; the calls would keep the old ones."""
        self.calls = None
        return super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or saved: all but the calls, which hold addresses."""
        return {name: value for name, value in self.__dict__.items() if name != "calls"}


class FusedLlamaLayer(FusedLayer, LlamaDecoderLayer):
    """See FusedLayer."""


class FusedMistralLayer(FusedLayer, MistralDecoderLayer):
    """See FusedLayer."""


class FusedQwen2Layer(FusedLayer, Qwen2DecoderLayer):
    """See FusedLayer."""


class FusedQwen3Layer(FusedLayer, Qwen3DecoderLayer):
    """See FusedLayer."""


_FUSED: Final[dict[type, type]] = {
    LlamaDecoderLayer: FusedLlamaLayer,
    MistralDecoderLayer: FusedMistralLayer,
    Qwen2DecoderLayer: FusedQwen2Layer,
    Qwen3DecoderLayer: FusedQwen3Layer,
}


class _Modules(NamedTuple):
    """The modules of a layer. Of unknown types, because users may replace them."""

    attention: Any
    mlp: Any
    before_attention: Any
    before_mlp: Any
    activation: Any
    linears: tuple[Any, ...]  # for query, key, value, output, gate, up and down
    head_norms: tuple[Any, ...]  # of query and key; empty if heads are not normalized

    @classmethod
    def of(cls, layer: Any) -> "_Modules":
        attention, mlp = layer.self_attn, layer.mlp
        has_norms = hasattr(attention, "q_norm")
        return cls(
            attention,
            mlp,
            layer.input_layernorm,
            layer.post_attention_layernorm,
            mlp.act_fn,
            (
                *(attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj),
                *(mlp.gate_proj, mlp.up_proj, mlp.down_proj),
            ),
            (attention.q_norm, attention.k_norm) if has_norms else (),
        )

    @property
    def norms(self) -> tuple[Any, ...]:
        return (self.before_attention, self.before_mlp, *self.head_norms)

    @property
    def every(self) -> tuple[Any, ...]:
        return (self.attention, self.mlp, self.activation, *self.norms, *self.linears)

    def are_watched(self) -> bool:
        """Whether other code has replaced a linear layer, or watches or replaces a forward."""
        return (
            any(self.hooks)
            or any("forward" in module.__dict__ for module in self.every)
            or not all(hasattr(linear, "part") for linear in self.linears)
        )

    @property
    def hooks(self) -> list[dict[int, Any]]:
        """Where the hooks of each module are registered, and those of all modules."""
        own = [(each._forward_hooks, each._forward_pre_hooks) for each in self.every]
        return [*_GLOBAL_HOOKS, *chain.from_iterable(own)]


class FusedCalls:
    """The five calls that compute a decoder layer, for its modules as they are now."""

    def __init__(self, layer: nn.Module, modules: _Modules, parts: "Sequence[Part]") -> None:
        from eab.compiled.products import Gate, Product, Rotation

        self._attention, self._size = modules.attention, int(modules.attention.head_dim)
        q, k, v, o, gate, up, down = parts
        self._heads = [part.outputs // self._size for part in (q, k, v)]
        self._rotation = partial(Rotation, heads=sum(self._heads[:2]))
        inputs = [linear.in_features for linear in modules.linears]
        heads = _head_norms(modules, self._heads[0])
        self._qkv = Product(inputs[0], [q, k, v], _norm(modules.before_attention), heads)
        self._output = Product(inputs[3], [o])
        self._gates = Product(inputs[4], [gate, up], _norm(modules.before_mlp))
        self._down = Product(inputs[6], [down], Gate(gate.outputs))
        self.round_inputs = down.kind.rounded_bytes(1) > 0
        self._snapshot = _Snapshot(layer, modules)

    def are_current(self) -> bool:
        """Whether no module, weight or hook has changed since."""
        return self._snapshot.is_unchanged()

    def output(self, rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The output of the layer, (T, hidden), for rows (T, hidden) at angles (1, T, D)."""
        tokens, rotation = rows.shape[0], self._rotation(cos.contiguous(), sin.contiguous())
        qkv = self._qkv(rows, rotation=rotation).view(1, tokens, -1, self._size)
        query, key, value = qkv.transpose(1, 2).split_with_sizes(self._heads, dim=1)
        attention = self._attention
        attended, _ = cache_attention(attention, query, key, value, None, attention.scaling)
        rows = self._output(attended.view(tokens, -1), residual=rows)
        return self._down(self._gates(rows), residual=rows)


class _Snapshot:
    """What the calls of a layer were made from."""

    def __init__(self, layer: nn.Module, modules: _Modules) -> None:
        self._hooks, watched = modules.hooks, modules.every
        own = [(each._parameters, each._buffers, each._modules) for each in watched]
        self._dicts = [
            layer._modules,
            *chain.from_iterable(own),
            *(each.__dict__ for each in watched),
        ]
        self._sizes = [*map(len, self._dicts)]
        entries = [
            (known, name, value)
            for known in self._dicts
            for name, value in known.items()
            if name not in _NEVER_CHANGED
        ]
        self._places, self._names, self._values = zip(*entries, strict=True)
        self._modules, self._types = watched, [*map(type, watched)]
        self._tensors = [value for value in self._values if isinstance(value, Tensor)]
        self._views = self._views_now()
        self._classes = {*self._types, *type(layer).__mro__[:-1]}
        self._forwards = [*map(_FORWARD, self._classes)]

    def is_unchanged(self) -> bool:
        """Whether all is as it was: asked for each layer in every pass, so without Python loops."""
        return (
            not any(self._hooks)
            and [*map(len, self._dicts)] == self._sizes
            and all(map(is_, map(dict.get, self._places, self._names), self._values))
            and [*map(type, self._modules)] == self._types
            and [*map(_FORWARD, self._classes)] == self._forwards
            and self._views_now() == self._views
        )

    def _views_now(self) -> list[object]:
        """What `.data` may have changed in each tensor."""
        tensors = self._tensors
        views = map(Tensor.data_ptr, tensors), map(Tensor.stride, tensors), map(_DTYPE, tensors)
        return [*chain(*views)]


def _norm(module: Any) -> "Norm":
    from eab.compiled.products import Norm

    return Norm(module.weight, module.variance_epsilon)


def _head_norms(modules: _Modules, query_heads: int) -> "HeadNorms | None":
    from eab.compiled.products import HeadNorms

    if not modules.head_norms:
        return None
    query, key = modules.head_norms
    return HeadNorms(query.weight, key.weight, query_heads, query.variance_epsilon)


def _is_close(output: Tensor, expected: Tensor, rows: Tensor, limit: float) -> bool:
    """Whether each row is what it should be, up to rounding."""
    error, added = (output - expected).norm(dim=1), (expected - rows).norm(dim=1)
    return bool((error <= limit * added).all())


def _calls_of(layer: nn.Module) -> FusedCalls | None:
    """The calls of a layer; None if it cannot be fused."""
    try:
        modules = _Modules.of(layer)
        if modules.are_watched():
            return None
        parts = [linear.part() for linear in modules.linears]
        return FusedCalls(layer, modules, parts) if _can_be_fused(modules, parts) else None
    except (AttributeError, TypeError, ValueError):  # modules of another kind in their place
        return None


def _can_be_fused(modules: _Modules, parts: Sequence[Any]) -> bool:
    """Whether all products of a layer are compiled, in whole blocks and vectors."""
    from eab.compiled.vectors import LANES

    if None in parts:
        return False
    filling = [
        part.outputs - linear.out_features
        for part, linear in zip(parts, modules.linears, strict=True)
    ]
    sizes = [modules.linears[4].out_features, modules.attention.head_dim // 2]
    return (
        len({part.kind for part in parts}) == 1
        and type(modules.activation).__name__ in ("SiLU", "SiLUActivation")
        and not any((*filling[:4], filling[6]))
        and all(size % LANES == 0 for size in sizes)
        and all(part.bias is None for part in parts[3:])
        and all(norm.weight.dtype == torch.float32 for norm in modules.norms)
    )
