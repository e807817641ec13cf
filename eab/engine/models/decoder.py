"""The forward pass of Llama and its kin: what a language model computes, in one file.

    embed -> (norm -> qkv -> rotate -> attend -> output -> norm -> gate, up -> down) x layers
          -> norm -> logits

A decoder reads a loaded transformers model: its modules by their names, and what they compute by
their values, so it serves every family that is built in this way. It shares the weights. Whether
it computes what transformers' own code computes is found out at loading (`huggingface.py`).

Shapes: T tokens, H query heads in G groups, that is, G key/value heads, of size D, V vocabulary.
"""

from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from eab.engine.models.cache_attention import cache_attention
from eab.engine.models.products import product
from eab.engine.models.weights import TiledEmbedding

Angles: TypeAlias = tuple[Tensor, Tensor]  # cosines and sines, (T, 1, R): the first R of D turn
_SILU: Final = ("SiLU", "SiLUActivation")


class Norm:
    """RMSNorm (Zhang and Sennrich, arXiv 1910.07467). Gemma's factor is one plus the weight."""

    def __init__(self, module: Any) -> None:
        self.module, self.weight = module, module.weight
        self.epsilon = float(getattr(module, "variance_epsilon", None) or module.eps)
        rows = torch.linspace(-1, 2, self.weight.numel()).to(self.weight)[None]
        for self.adds_one in (False, True):
            if torch.allclose(self(rows), module(rows), rtol=1e-2, atol=1e-6):
                return
        raise ValueError(f"{type(module).__name__} is no RMSNorm")

    def __call__(self, x: Tensor) -> Tensor:
        """x (..., N) -> (..., N)."""
        weight: Tensor = 1.0 + self.weight.float() if self.adds_one else self.weight
        if x.dtype != torch.float64:
            rows = x.to(weight.dtype)
            return functional.rms_norm(rows, weight.shape, weight, self.epsilon).to(x.dtype)
        rows = x.float()  # as in transformers, whatever the dtype
        rows = rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (weight * rows.to(weight.dtype)).to(x.dtype)


class Gate:
    """A gated activation, such as SwiGLU (Shazeer, arXiv 2002.05202): f(gate) times up.

    Args:
        size: N, the number of gates.
        start: The number of the first value among the outputs.
    """

    def __init__(self, activation: nn.Module, size: int, start: int) -> None:
        self._size, self.start = size, start
        self.is_silu = type(activation).__name__ in _SILU
        self._activation = functional.silu if self.is_silu else activation

    def __call__(self, x: Tensor) -> Tensor:
        """x (T, 2 N or more), gates and then values -> (T, N)."""
        activated: Tensor = self._activation(x[:, : self._size])
        return activated * x[:, self.start : self.start + self._size]


class Heads:
    """Query, key and value of outputs: in heads, perhaps normalized (Qwen 3), and rotated."""

    def __init__(self, attention: Any, outputs: int) -> None:
        self.size = int(attention.head_dim)
        self.queries = attention.o_proj.in_features // self.size
        self.keys = (outputs // self.size - self.queries) // 2
        names = [name for name in ("q_norm", "k_norm") if hasattr(attention, name)]
        self.norms = [Norm(getattr(attention, name)) for name in names]
        if any(norm.weight.numel() != self.size for norm in self.norms):
            raise ValueError("all heads are normalized together")

    def __call__(self, x: Tensor, angles: Angles | None) -> tuple[Tensor, ...]:
        """x (T, (H + 2 G) D) -> query (T, H, D), key and value (T, G, D)."""
        queries, keys = self.queries, self.keys
        turned, value = x.view(len(x), -1, self.size).split_with_sizes((queries + keys, keys), 1)
        if self.norms:
            parts = zip(self.norms, turned.split_with_sizes((queries, keys), 1), strict=True)
            turned = torch.cat([norm(part) for norm, part in parts], dim=1)
        if angles is not None:
            turned = rotated(turned, *angles)
        return *turned.split_with_sizes((queries, keys), 1), value


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (Su et al., arXiv 2104.09864): the first R numbers of each head turn in
    pairs, by the position. The partner of a number is R / 2 away; `sin` is negative for the first.
    """
    size = cos.shape[-1]
    if size < heads.shape[-1]:
        return torch.cat((rotated(heads[..., :size], cos, sin), heads[..., size:]), dim=-1)
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((second, first), dim=-1) * sin


class Rope:
    """The angles of each position, by the frequencies that the model was loaded with.

    Args:
        kind: The type of the layers, if each type has its own frequencies (Gemma 3).
    """

    def __init__(self, module: Any, kind: str) -> None:
        def value(name: str, default: Any = None) -> Any:
            return getattr(module, f"{kind}_{name}" if kind else name, default)

        # With `longrope`, the module may just have read a long text, which has other frequencies.
        long = value("long_inv_freq")
        self._inv_freq = value("inv_freq" if long is None else "original_inv_freq")
        self._long = self._inv_freq if long is None else long
        self._scaling = float(value("attention_scaling"))

    def angles(self, positions: Tensor, dtype: torch.dtype, long: bool) -> Angles:
        """The cosines and sines at positions (T,), as `rotated` takes them."""
        frequencies = (self._long if long else self._inv_freq).to(positions.device).float()
        half = positions[:, None, None].float() * frequencies
        cos, sin = half.cos(), half.sin()
        cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        if self._scaling != 1.0:
            cos, sin = cos * self._scaling, sin * self._scaling
        return cos.to(dtype), sin.to(dtype)


class Layer:
    """A decoder layer."""

    def __init__(self, module: Any, dtype: torch.dtype, rope: str) -> None:
        attention, mlp = module.self_attn, module.mlp
        self.module, self._attention, self._scale = module, attention, float(attention.scaling)
        rotates = bool(getattr(attention, "use_rope", True))  # SmolLM 3: not in every layer
        self.rope = rope if rotates else None
        before, after, before_mlp, after_mlp = _norms_of(module)
        linears = _linears(attention, "qkv_proj", "q_proj", "k_proj", "v_proj")
        heads = Heads(attention, sum(linear.out_features for linear in linears))
        factor = float(getattr(module, "residual_multiplier", 1.0))  # Granite
        self.qkv = product(linears, dtype, before, heads=heads)
        self.output = product([attention.o_proj], dtype, after=after, factor=factor)
        gates = _linears(mlp, "gate_up_proj", "gate_proj", "up_proj")
        self.gates = product(gates, dtype, before_mlp)
        size = mlp.down_proj.in_features
        activation = getattr(mlp, "act_fn", None) or mlp.activation_fn
        gate = Gate(activation, size, [*self.gates.starts, size][1])
        self.down = product([mlp.down_proj], dtype, gate, after_mlp, factor=factor)

    def __call__(self, x: Tensor, angles: Angles | None) -> Tensor:
        """x (T, hidden) -> (T, hidden)."""
        query, key, value = self.qkv(x, angles=angles)
        x = self.output(self._attend(query, key, value), residual=x)
        out: Tensor = self.down(self.gates(x), residual=x)
        return out

    def _attend(self, *heads: Tensor) -> Tensor:
        """Attention over the rows of the cache: (T, H, D) and twice (T, G, D) -> (T, H D)."""
        query, key, value = (each.transpose(0, 1)[None] for each in heads)
        out, _ = cache_attention(self._attention, query, key, value, None, self._scale)
        return out.view(len(heads[0]), -1)


class Decoder:
    """A model of Llama's kind.

    Raises:
        AttributeError, TypeError, ValueError: The model has other modules or other weights.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config, base = model.config.get_text_config(), model.base_model
        self._embedding: Any = model.get_input_embeddings()
        self._factor = float(getattr(config, "embedding_multiplier", 1.0))  # Granite
        self._config = config
        rotary: Any = base.rotary_emb
        count = config.num_hidden_layers
        types = getattr(config, "layer_types", None) or [""] * count
        kinds = [kind if hasattr(rotary, f"{kind}_inv_freq") else "" for kind in types]
        self._ropes = {kind: Rope(rotary, kind) for kind in kinds}
        modules: Any = base.layers
        self.layers = [
            Layer(module, model.dtype, kind)
            for module, kind in zip(modules[:count], kinds, strict=True)
        ]
        self._norm = Norm(base.norm)
        self._head = product([model.get_output_embeddings()], model.dtype)
        products = [self._head]
        for layer in self.layers:
            products += (layer.qkv, layer.output, layer.gates, layer.down)
        read = {self._embedding, rotary, base.norm}.union(*(each.modules for each in products))
        _refuse_unread(model, read)

    def __call__(self, ids: Tensor, positions: Tensor, kept: Tensor, long: bool = False) -> Tensor:
        """Token ids and their positions, (T,) -> the logits of the tokens `kept`, (K, V)."""
        x = self.embed(ids)
        angles = self.angles(positions, x.dtype, long)
        for layer in self.layers:
            x = layer(x, angles[layer.rope])
        return self.logits(x[kept])

    def embed(self, ids: Tensor) -> Tensor:
        """ids (T,) -> (T, hidden)."""
        embedding, is_tiled = self._embedding, type(self._embedding) is TiledEmbedding
        x: Tensor = embedding(ids) if is_tiled else functional.embedding(ids, embedding.weight)
        if (scale := getattr(embedding, "embed_scale", None)) is not None:  # Gemma
            x = x * scale.to(x.dtype)
        return x if self._factor == 1.0 else x * self._factor

    def angles(
        self, positions: Tensor, dtype: torch.dtype, long: bool
    ) -> dict[str | None, Angles | None]:
        """For each kind of layer; for layers without positions, none."""
        known = {kind: rope.angles(positions, dtype, long) for kind, rope in self._ropes.items()}
        return {None: None, **known}

    def logits(self, x: Tensor) -> Tensor:
        """x (K, hidden) -> (K, V)."""
        out: Tensor = self._head(self._norm(x))
        divisor = getattr(self._config, "logits_scaling", 1.0)  # Granite
        out = out if divisor == 1.0 else out / divisor
        cap = getattr(self._config, "final_logit_softcapping", None)  # Gemma 2
        return (out / cap).tanh() * cap if cap else out


def _linears(module: Any, merged: str, *names: str) -> list[Any]:
    """The layers with these names, or one that has merged them (Phi 3)."""
    found = getattr(module, merged, None)
    return [getattr(module, name) for name in names] if found is None else [found]


def _norms_of(layer: Any) -> tuple[Norm | None, ...]:
    """The norms before and after attention, and before and after what follows it."""
    has_more = hasattr(layer, "pre_feedforward_layernorm")  # Gemma 2 and 3
    names = ["input_layernorm", "", "post_attention_layernorm", ""]
    if has_more:
        names[1:] = names[2], "pre_feedforward_layernorm", "post_feedforward_layernorm"
    return tuple(Norm(getattr(layer, name)) if name else None for name in names)


def _refuse_unread(model: nn.Module, read: set[Any]) -> None:
    """Raise ValueError if the model has weights that the decoder does not read."""
    for name, module in model.named_modules():
        tensors = [*module._parameters.values(), *module._buffers.values()]
        if module not in read and any(tensor is not None for tensor in tensors):
            raise ValueError(f"{name} is not read")
