"""Decoder layers of Llama, Mistral and Qwen2 in a few calls of compiled code.

transformers computes such a layer by about forty operators. In a decode step on a CPU, those
between the matrix products take a quarter of the time, mostly to be called. So a layer whose
products are compiled takes five calls: the products for query, key and value of normalized rows,
then rotated; attention; the output product, added to the residual; the products for gate and up of
normalized rows; and the product of the gated rows, added to the residual.

Layers are fused only in passes of this project. In the first one, each compares its output with
that of transformers' code, which may change with its version, and stays as it is if they differ.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from eab import compiled
from eab.models.cache_attention import cache_attention
from eab.models.passing import running_batches

if TYPE_CHECKING:
    from eab.compiled.products import Norm, Part

# How much a row may differ, relative to what the layer adds to it. If inputs are rounded, another
# rounding error of floats may change one by a whole step.
MAX_ERROR: Final = 1e-3
MAX_ERROR_OF_ROUNDED: Final = 0.05


def fuse_layers(model: nn.Module) -> bool:
    """Fuse the layers of a model that can be; returns whether there are any."""
    if not compiled.can_compile():
        return False
    found = [layer for layer in model.modules() if type(layer) in _FUSED]
    found = [layer for layer in found if _has_compiled_products(layer)]
    for layer in found:
        layer.__class__ = _FUSED[type(layer)]
    return bool(found)


class FusedLayer(nn.Module):
    """Stands before the class of a decoder layer, whose modules and weights it uses."""

    agrees: bool | None = None  # whether transformers' code gives the same; None: not yet known

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """hidden_states (1, T, hidden) -> (1, T, hidden)."""
        angles = kwargs.get("position_embeddings")
        is_ours = running_batches() is not None and angles is not None
        can_be = is_ours and hidden_states.shape[0] == 1 and self.agrees is not False
        modules = _Modules.of(self) if can_be else None
        if modules is None or modules.are_watched():
            plain: Tensor = super().forward(hidden_states, *args, **kwargs)
            return plain
        rows = hidden_states[0]
        found = fused_layer(modules, rows, *angles)  # type: ignore[misc]
        if self.agrees:
            return found[None]
        # In this order, the cache keeps K and V of transformers' code.
        expected: Tensor = super().forward(hidden_states, *args, **kwargs)
        self.agrees = _is_close(found, expected[0], rows, modules.down.part())
        return expected


class FusedLlamaLayer(FusedLayer, LlamaDecoderLayer):
    """See FusedLayer."""


class FusedMistralLayer(FusedLayer, MistralDecoderLayer):
    """See FusedLayer."""


class FusedQwen2Layer(FusedLayer, Qwen2DecoderLayer):
    """See FusedLayer."""


_FUSED: Final[dict[type, type]] = {
    LlamaDecoderLayer: FusedLlamaLayer,
    MistralDecoderLayer: FusedMistralLayer,
    Qwen2DecoderLayer: FusedQwen2Layer,
}


class _Modules(NamedTuple):
    """The modules of a layer. Of unknown types, because users may replace them."""

    attention: Any
    mlp: Any
    before_attention: Any
    before_mlp: Any
    query: Any
    key: Any
    value: Any
    output: Any
    gate: Any
    up: Any
    down: Any

    @classmethod
    def of(cls, layer: Any) -> "_Modules":
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            attention,
            mlp,
            layer.input_layernorm,
            layer.post_attention_layernorm,
            *(attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj),
            *(mlp.gate_proj, mlp.up_proj, mlp.down_proj),
        )

    @property
    def linears(self) -> tuple[Any, ...]:
        """The seven linear layers."""
        return self[4:]

    def are_watched(self) -> bool:
        """Whether other code has replaced a linear layer, or watches or replaces a forward."""
        return any(
            module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__
            for module in self
        ) or not all(hasattr(linear, "part") for linear in self.linears)


def fused_layer(modules: _Modules, rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The output of a decoder layer, (T, hidden), for rows (T, hidden) at angles (1, T, D)."""
    from eab.compiled.products import Gate, Rotation, multiply

    attention, size = modules.attention, modules.attention.head_dim
    q, k, v, o, gate, up, down = (linear.part() for linear in modules.linears)
    heads = [part.outputs // size for part in (q, k, v)]
    rotation = Rotation(cos[0].contiguous(), sin[0].contiguous(), heads[0] + heads[1])
    normalized = _norm(modules.before_attention)
    qkv = multiply(rows, [q, k, v], before=normalized, rotation=rotation)
    tokens = rows.shape[0]
    query, key, value = qkv.view(1, tokens, -1, size).transpose(1, 2).split(heads, dim=1)
    attended, _ = cache_attention(attention, query, key, value, None, attention.scaling)
    rows = multiply(attended.view(tokens, -1), [o], residual=rows)
    gates = multiply(rows, [gate, up], before=_norm(modules.before_mlp))
    gated = Gate(modules.down.in_features, gate.outputs)
    return multiply(gates, [down], before=gated, residual=rows)


def _norm(module: Any) -> "Norm":
    from eab.compiled.products import Norm

    return Norm(module.weight, module.variance_epsilon)


def _is_close(found: Tensor, expected: Tensor, rows: Tensor, part: "Part") -> bool:
    """Whether each row is what it should be, up to rounding."""
    limit = MAX_ERROR_OF_ROUNDED if part.kind.rounded_bytes(1) else MAX_ERROR
    error, added = (found - expected).norm(dim=1), (expected - rows).norm(dim=1)
    return bool((error <= limit * added).all())


def _has_compiled_products(layer: nn.Module) -> bool:
    """Whether all products of a layer are compiled, in whole blocks and vectors."""
    from eab.compiled.tiles import BLOCK
    from eab.compiled.vectors import LANES

    modules = _Modules.of(layer)
    if modules.are_watched():
        return False
    parts = [linear.part() for linear in modules.linears]
    blocks = [linear.out_features for linear in (*modules.linears[:4], modules.down)]
    sizes = [modules.gate.out_features, modules.attention.head_dim // 2]
    return (
        None not in parts
        and len({part.kind for part in parts}) == 1
        and type(modules.mlp.act_fn).__name__ in ("SiLU", "SiLUActivation")
        and all(size % BLOCK == 0 for size in blocks)
        and all(size % LANES == 0 for size in sizes)
        and all(part.bias is None for part in parts[3:])
        and modules.before_attention.weight.dtype == torch.float32
    )
