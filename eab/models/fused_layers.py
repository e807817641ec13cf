"""Decoder layers of Llama's kind, computed by a few calls of compiled code.

transformers computes such a layer by about forty operators. In a decode step on a CPU, those
between the matrix products take a quarter of the time, mostly to be called. So a layer whose
products are compiled takes five calls: the products for query, key and value of normalized rows,
then rotated; attention; the output product, added to the residual; the products for gate and up of
normalized rows; and the product of the gated rows, added to the residual.

This happens in passes of this project, and only if the code of transformers gives the same in the
layer's first pass.
"""

from collections.abc import Hashable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import Tensor, nn

from eab import compiled
from eab.models.cache_attention import cache_attention
from eab.models.passing import running_batches

if TYPE_CHECKING:
    from eab.compiled.products import Norm, Part

# How much a layer may differ, relative to what it adds to its input. If inputs are rounded, another
# rounding error of floats may change one by a whole step.
MAX_ERROR: Final = 1e-3
MAX_ERROR_OF_ROUNDED: Final = 0.05
_NORMS: Final = ("input_layernorm", "post_attention_layernorm")
_OF_ATTENTION: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
_OF_MLP: Final = ("gate_proj", "up_proj", "down_proj")


def fuse_layers(model: nn.Module) -> None:
    """Fuse the layers of a model that can be."""
    if not compiled.can_compile():
        return
    for layer in [*model.modules()]:
        if _has_the_modules(layer) and _has_whole_blocks(layer):
            layer.__class__ = _fused_kind(cast(Hashable, type(layer)))


@cache
def _fused_kind(kind: Hashable) -> Any:
    """The subclass of a layer's class that computes it fused."""
    kind = cast(type, kind)
    return type(f"Fused{kind.__name__}", (FusedLayer, kind), {"__module__": kind.__module__})


class FusedLayer(nn.Module):
    """Stands before the class of a decoder layer, whose modules and weights it uses."""

    agrees: bool | None = None  # whether transformers' code gives the same; None: not yet known

    def forward(
        self,
        hidden_states: Tensor,
        *args: Any,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """hidden_states (1, T, hidden) -> (1, T, hidden)."""
        angles = position_embeddings
        can_be = running_batches() is not None and len(hidden_states) == 1
        if can_be and self.agrees and angles is not None:
            return fused_layer(self, hidden_states[0], *angles)[None]
        expected: Tensor = super().forward(
            hidden_states, *args, position_embeddings=angles, **kwargs
        )
        if can_be and self.agrees is None and angles is not None:
            self.agrees = self._gives(expected[0], hidden_states[0], angles)
        return expected

    def _gives(self, expected: Tensor, rows: Tensor, angles: Any) -> bool:
        """Whether the fused layer gives what transformers' code gave for these rows."""
        layer: Any = self
        if any(angle.shape != (1, len(rows), layer.self_attn.head_dim) for angle in angles):
            return False
        error = (fused_layer(layer, rows, *angles) - expected).norm()
        rounds = layer.mlp.down_proj.part().kind.rounded_bytes(1) > 0
        limit = MAX_ERROR_OF_ROUNDED if rounds else MAX_ERROR
        return bool(error <= limit * (expected - rows).norm())


def fused_layer(layer: Any, rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The output of a decoder layer, (T, hidden), for rows (T, hidden) at angles (1, T, D)."""
    from eab.compiled.products import Gate, Rotation, multiply

    attention, mlp = layer.self_attn, layer.mlp
    q, k, v, o = _parts(attention, _OF_ATTENTION)
    gate, up, down = _parts(mlp, _OF_MLP)
    size = attention.head_dim
    heads = [part.outputs // size for part in (q, k, v)]
    rotation = Rotation(cos[0].contiguous(), sin[0].contiguous(), heads[0] + heads[1])
    normalized = _norm(layer.input_layernorm)
    qkv = multiply(rows, [q, k, v], before=normalized, rotation=rotation)
    query, key, value = qkv.view(1, len(rows), -1, size).transpose(1, 2).split(heads, dim=1)
    attended, _ = cache_attention(attention, query, key, value, None, attention.scaling)
    rows = multiply(attended.view(len(rows), -1), [o], residual=rows)
    normalized = _norm(layer.post_attention_layernorm)
    gates = multiply(rows, [gate, up], before=normalized)
    gated = Gate(mlp.down_proj.in_features, gate.outputs)
    return multiply(gates, [down], before=gated, residual=rows)


def _parts(parent: Any, names: tuple[str, ...]) -> "list[Part]":
    return [getattr(parent, name).part() for name in names]


def _norm(module: Any) -> "Norm":
    from eab.compiled.products import Norm

    return Norm(module.weight, module.variance_epsilon)


def _has_the_modules(layer: Any) -> bool:
    """Whether a layer consists of the modules of a Llama layer, and its products are compiled."""
    if {name for name, _ in layer.named_children()} != {"self_attn", "mlp", *_NORMS}:
        return False
    attention, mlp = layer.self_attn, layer.mlp
    inside = [{name for name, _ in part.named_children()} for part in (attention, mlp)]
    if inside != [{*_OF_ATTENTION}, {*_OF_MLP, "act_fn"}]:
        return False
    linears = [getattr(attention, name) for name in _OF_ATTENTION]
    linears += [getattr(mlp, name) for name in _OF_MLP]
    parts: list[Any] = [linear.part() if hasattr(linear, "part") else None for linear in linears]
    norms = [getattr(layer, name) for name in _NORMS]
    return (
        None not in parts
        and len({part.kind for part in parts}) == 1
        and type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation")
        and all(hasattr(norm, "variance_epsilon") for norm in norms)
        and all(norm.weight.dtype == torch.float32 for norm in norms)
        and all(hasattr(attention, name) for name in ("head_dim", "scaling", "layer_idx"))
        and not any(_is_hooked(module) for module in layer.modules())
    )


def _is_hooked(module: nn.Module) -> bool:
    """Whether other code watches or replaces the module's forward."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _has_whole_blocks(layer: Any) -> bool:
    """Whether the sizes fit into vectors and blocks, and nothing is added besides the residual."""
    from eab.compiled.tiles import BLOCK
    from eab.compiled.vectors import LANES

    attention, mlp = layer.self_attn, layer.mlp
    blocks = [getattr(attention, name).out_features for name in _OF_ATTENTION]
    sizes = [mlp.gate_proj.out_features, attention.head_dim // 2]
    without_bias = (attention.o_proj, *(getattr(mlp, name) for name in _OF_MLP))
    return (
        all(size % BLOCK == 0 for size in blocks)
        and all(size % LANES == 0 for size in sizes)
        and all(linear.bias is None for linear in without_bias)
    )
