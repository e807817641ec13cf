"""A decoder-only transformers model that runs on the caches of this project (see
eab.engine.models.cache_attention).

Our decoder stands in for transformers' code where it computes the same, and while nobody watches or
changes the modules that it was made from. It is compared at loading, at small and at large
positions: the embedding, what each layer makes of the same input, and the logits.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from inspect import signature
from itertools import accumulate, chain
from operator import attrgetter, is_, itemgetter
from typing import Any, Final

import torch
from msgspec import structs
from torch import Tensor, nn
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from eab.engine.caches.attention import attention_kernels
from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.kv_pool import KVPool
from eab.engine.caches.shape import KVShape
from eab.engine.caches.tree import TreeCache
from eab.engine.models.attention_calls import read_attention
from eab.engine.models.cache_attention import (
    ATTENTION,
    PositionsAsPast,
    our_attention,
    running,
    use_attention,
)
from eab.engine.models.configuration import (
    full_context,
    let_read_long_texts,
    original_length,
    reading_long_texts,
    refuse_by_config,
)
from eab.engine.models.cuda_graphs import CudaGraphRunner, new_graph_capture
from eab.engine.models.decoder import Decoder
from eab.engine.models.machine import is_out_of_memory, total_memory
from eab.engine.models.transformers_model import TransformersModel, tokens_to_check
from eab.engine.models.weights import AS_LOADED_WEIGHTS, StoredWeights, is_watched
from eab.errors import ModelError
from eab.run.events import LayerRow
from eab.weight_formats import AS_LOADED

MAX_LIMIT_TO_CHECK: Final = 64  # the longest window or chunk that the check text exceeds
POOL_SHARE: Final = 16  # of the device's memory, for tensors that runs borrow
_NO_LIMIT: Final = 2**40


class HuggingFaceModel(TransformersModel):
    """A transformers LanguageModel whose attention reads KV rows from our caches."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        stored: StoredWeights = AS_LOADED_WEIGHTS,
        sha256: str = "",
    ) -> None:
        """Take over a loaded decoder-only model with ordinary causal attention.

        Raises:
            ModelError: The model does not work with a tree cache. It is left as it was.
        """
        refuse_by_config(model)
        text_config = model.config.get_text_config()
        context, original = full_context(text_config), original_length(text_config)
        switches = 0 < original < context
        if switches and not let_read_long_texts(model, original):
            switches, context = False, original
        super().__init__(model, tokenizer, name, context, stored)
        self._parameters = signature(model.forward).parameters
        # Whether the model can compute logits only for selected tokens
        self._keeps_logits = "logits_to_keep" in self._parameters
        # Whether the model derives positions from the length of transformers' cache
        self._counts_from_past = bool(getattr(text_config, "attn_temperature_tuning", False))
        self._graph_runner: CudaGraphRunner | None = None
        self._own_decoder: OwnDecoder | None = None
        self._plain_last = torch.empty(0)  # last logits of the check text, without a cache
        refusal = f"{name} ({text_config.model_type}) does not work with a tree cache"
        with our_attention(model, refusal) as before:
            tokens = tokens_to_check(min(12, self.context), int(text_config.vocab_size))
            shape = read_attention(model, tokens, self.context)
            shape = replace(shape, rope_switch=original if switches else 0)
            self._describe(shape, sha256, layer_rows(shape))
            if self.kv_shape.uses_static_buffers:
                self._graph_runner = self._make_graph_runner()
                self.kv_pool = KVPool(self.kv_shape, total_memory(shape.device) // POOL_SHARE)
            self._plain_last = self._plain_logits(before, self._tokens_to_check)[-1]
            self._check_against_plain_forward()
            if switches:
                self._check_long_texts(before)
            self._use_own_decoder()

    @torch.no_grad()
    def forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        if self._graph_runner is not None and len(batches) == 1 and not batches[0].long:
            own = self._own_decoder
            if own is None or own.current() is not None:  # a graph would not notice a change
                return self._graph_runner.run(batches[0], lambda batch: self._forward([batch]))
        return self._forward(batches)

    def _forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        long = batches[0].long
        if any(batch.long != long for batch in batches):
            return torch.cat([self._forward([batch]) for batch in batches])
        ids, positions, logits_indices = _inputs_of(batches)
        if self._own_decoder is not None and (decoder := self._own_decoder.current()) is not None:
            with attention_kernels(self.kv_shape.device), running(batches):
                return decoder(ids, positions, logits_indices, long)
        more: dict[str, Any] = {"logits_to_keep": logits_indices} if self._keeps_logits else {}
        if self._counts_from_past:
            more["past_key_values"] = PositionsAsPast(positions)
        with attention_kernels(self.kv_shape.device), running(batches), reading_long_texts(long):
            logits: Tensor = self._model(
                input_ids=ids[None],
                position_ids=positions[None],
                attention_mask=self._no_mask,
                use_cache=False,
                **more,
            ).logits
        return logits[0] if self._keeps_logits else logits[0, logits_indices]

    @property
    def _no_mask(self) -> Tensor:
        """A mask with four dimensions, so that transformers does not build one."""
        return torch.zeros((1, 1, 1, 1), device=self.kv_shape.device)

    def _make_graph_runner(self) -> CudaGraphRunner:
        # The runner must not keep the model alive.
        device, this = self.kv_shape.device, weakref.ref(self)
        return CudaGraphRunner(
            lambda: new_graph_capture(device),
            lambda: (model := this()) is not None and model._replays_agree(),
        )

    def _replays_agree(self) -> bool:
        """Whether replayed CUDA graphs give the same logits as plain SDPA."""
        return self._cache_error(padded=True) < self._max_error

    def _check_against_plain_forward(self) -> None:
        """Compare the logits that our cache gives with those of plain SDPA."""
        if not (error := self._cache_error()) < self._max_error:
            if not self._counts_from_past and "past_key_values" in self._parameters:
                self._counts_from_past = True
                return self._check_against_plain_forward()
            raise ModelError(
                f"{self.card.name} ({self.card.family}) computes different logits with a tree "
                f"cache (relative error {error:.2g}); only ordinary causal attention is supported"
            )

    def _use_own_decoder(self) -> None:
        """Use the decoder of this project if it agrees with transformers' code."""
        if self._counts_from_past:
            return
        is_rounded = self.stored.weights != AS_LOADED
        # The model keeps tensors that are merged: they are of the kind of its own.
        inference = self._model.get_input_embeddings().weight.is_inference()
        kernels = attention_kernels(self.kv_shape.device)
        with kernels, torch.inference_mode(inference), torch.no_grad():
            found = own_decoder(
                *(self._model, lambda batch: self._forward([batch])),
                *(self._batches_to_compare, is_rounded),
            )
        self._own_decoder = found
        if found is not None and not self._cache_error() < self._max_error:
            self._own_decoder = None
        self.card = structs.replace(self.card, own_decoder=self._own_decoder is not None)

    def _batches_to_compare(self) -> Iterator[ForwardBatch]:
        """The check text at its positions, and spread over all positions that the model knows."""
        tokens, switch = self._tokens_to_check, self.kv_shape.rope_switch
        count, reaches = len(tokens), {switch or self.context: False, self.context: switch > 0}
        for positions, long in {count: False, **reaches}.items():
            batch = TreeCache(self.kv_shape, 1, _NO_LIMIT).prepare([0], [tokens], [count])
            spread = [index * (positions - 1) // max(1, count - 1) for index in range(count)]
            yield replace(batch, positions=batch.positions.new_tensor(spread), long=long)

    @torch.inference_mode()
    def _check_long_texts(self, implementation: str) -> None:
        """Check the logits before a last token whose position is beyond the original length."""
        original = self.kv_shape.rope_switch
        tokens = self._tokens_to_check[:original]
        positions = torch.tensor([[*range(len(tokens)), original]], device=self.kv_shape.device)
        plain = self._plain_logits(implementation, [*tokens, 0], position_ids=positions)[-2]
        cache = TreeCache(self.kv_shape, 1, _NO_LIMIT)
        for part in (tokens[:-3], tokens[-3:]):
            ours = self.forward([replace(cache.prepare([0], [part]), long=True)])[-1].float()
        if not _difference(ours, plain) < self._max_error:
            raise ModelError(
                f"{self.card.name} ({self.card.family}) computes different logits with a tree "
                f"cache in texts of more than {original} tokens"
            )

    @property
    def _tokens_to_check(self) -> list[int]:
        """The check text, longer than any short window."""
        reaches = (kind.reach for kind in self.kv_shape.mask_kinds)
        limits = {limit for reach in reaches for limit in (reach.window, reach.chunk)}
        short = max((limit for limit in limits if limit <= MAX_LIMIT_TO_CHECK), default=0)
        length = min(max(12, short + 5), self.context)
        return tokens_to_check(length, self.card.vocab_size)

    @torch.inference_mode()
    def _plain_logits(self, implementation: str, tokens: list[int], **arguments: Tensor) -> Tensor:
        """The logits of a text, (T, V), by an attention of transformers, without a cache."""
        use_attention(self._model, implementation)
        ids = torch.tensor([tokens], device=self.kv_shape.device)
        with attention_kernels(self.kv_shape.device):
            logits: Tensor = self._model(ids, use_cache=False, **arguments).logits[0].float()
        use_attention(self._model, ATTENTION)
        return logits

    @torch.inference_mode()
    def _cache_error(self, padded: bool = False) -> float:
        """The relative error of the last logits when our cache reads the check text in parts. If
        `padded`, its end is read token by token in fixed shapes, as CUDA graphs if possible.
        """
        tokens = self._tokens_to_check
        cache = TreeCache(self.kv_shape, len(tokens) if padded else 1, _NO_LIMIT, padded)
        parts = [tokens[:-3], tokens[-3:]]
        if padded:
            parts = [tokens[:-5], *([token] for token in tokens[-5:])]
        outputs = [self.forward([cache.prepare([0], [part])]) for part in parts if part]
        return _difference(outputs[-1][-1], self._plain_last)


def _inputs_of(batches: Sequence[ForwardBatch]) -> tuple[Tensor, Tensor, Tensor]:
    """The ids and positions of all batches, (T,) each, and the tokens whose logits are kept."""
    if len(batches) == 1:
        return batches[0].ids, batches[0].positions, batches[0].logits_indices
    starts = accumulate((len(batch.ids) for batch in batches), initial=0)
    kept = [batch.logits_indices + start for batch, start in zip(batches, starts, strict=False)]
    ids, positions = ([getattr(batch, name) for batch in batches] for name in ("ids", "positions"))
    return torch.cat(ids), torch.cat(positions), torch.cat(kept)


def _difference(logits: Tensor, plain: Tensor) -> float:
    """The largest error relative to the plain model's logits."""
    error: float = (logits.float() - plain).abs().max().item() / max(1.0, plain.abs().max().item())
    return error


def layer_rows(shape: KVShape) -> tuple[LayerRow, ...]:
    """What each layer stores, for the model card; empty if the card's other numbers imply it."""
    if all(layer.rows is None and layer.source < 0 for layer in shape.attention):
        return ()
    return tuple(LayerRow(row.kv_heads, row.key_dim, row.value_dim) for row in shape.stored)


# How much a row may differ, relative to what a layer adds to it. Where inputs are rounded, another
# rounding error of floats may change one by a whole step.
MAX_ERROR: Final = 1e-4
MAX_ERROR_OF_ROUNDED: Final = 0.05
_ROUNDINGS: Final = 4  # of a sum in its dtype
MAX_SCALE: Final = 0.01  # how far all that is added may be off by a factor, where rounding cancels

Forward = Callable[[ForwardBatch], Tensor]
_GLOBAL_HOOKS: Final = (
    nn.modules.module._global_forward_hooks,
    nn.modules.module._global_forward_pre_hooks,
)
_HOOKS: Final = (itemgetter("_forward_hooks"), itemgetter("_forward_pre_hooks"))
_FORWARD: Final = attrgetter("forward")
_DTYPE: Final = attrgetter("dtype")
# Attributes of every module that do not change what it computes
_NEVER_CHANGED: Final = nn.Module().__dict__.keys()


class OwnDecoder:
    """The decoder of a model, and the modules, weights and hooks that the model had.

    Raises:
        AttributeError, TypeError, ValueError: The model is of another kind, or watched.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.modules = [*model.modules()]
        if any(map(is_watched, self.modules)):
            raise ValueError("other code watches the model")
        tied = Counter(id(each) for _, each in model.named_parameters(remove_duplicate=False))
        del tied[id(model.get_input_embeddings().weight)]  # the head may have it, too
        if any(places > 1 for places in tied.values()):
            raise ValueError("layers share weights")
        self.decoder = Decoder(model)
        self._attributes = [*map(vars, self.modules)]
        held = [(each._parameters, each._buffers, each._modules) for each in self.modules]
        self._dicts: list[Any] = [*chain.from_iterable(held), *self._attributes[1:]]
        entries = [
            (known, name, value)
            for known in self._dicts
            for name, value in known.items()
            if name not in _NEVER_CHANGED
        ]
        self._places, self._names, self._values = zip(*entries, strict=True)
        tensors = [value for value in self._values if isinstance(value, Tensor)]
        self._tensors = [tensor for tensor in tensors if tensor.layout == torch.strided]
        self._classes = {*map(type, self.modules)}
        self._before = self._now()

    def current(self) -> Decoder | None:
        """The decoder, unless something has changed or there are hooks: asked in every pass, so
        without loops.
        """
        same = (
            not any(_GLOBAL_HOOKS)
            and "forward" not in self._attributes[0]
            and all(map(is_, map(dict.get, self._places, self._names), self._values))
            and self._now() == self._before
        )
        return self.decoder if same else None

    def _now(self) -> list[object]:
        """What can change in the objects that stay. `.data` may change a tensor."""
        tensors = self._tensors
        hooks = (map(len, map(hooks_of, self._attributes)) for hooks_of in _HOOKS)
        sizes, classes = map(len, self._dicts), map(type, self.modules)
        views = map(Tensor.data_ptr, tensors), map(Tensor.stride, tensors), map(_DTYPE, tensors)
        return [*chain(*hooks, sizes, classes, map(_FORWARD, self._classes), *views)]


def own_decoder(
    model: PreTrainedModel,
    forward: Forward,
    batches: Callable[[], Iterator[ForwardBatch]],
    is_rounded: bool,
) -> OwnDecoder | None:
    """The model's decoder if it computes what transformers' code computes.

    Args:
        forward: Runs transformers' code on a batch.
        batches: Makes the batches to compare, each with a cache of its own.
    """
    limit = MAX_ERROR_OF_ROUNDED if is_rounded or model.dtype.itemsize < 4 else MAX_ERROR
    try:
        own = OwnDecoder(model)
        pairs = zip(batches(), batches(), strict=True)
        agrees = all(_agrees(own.decoder, forward, *pair, limit) for pair in pairs)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return None
    return own if agrees else None


def _agrees(
    decoder: Decoder, forward: Forward, plain: ForwardBatch, ours: ForwardBatch, limit: float
) -> bool:
    """Whether embedding, layers and logits are those of transformers, each for the same input."""
    steps: list[tuple[Tensor, Tensor]] = []

    def note(_: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        steps.append((given[0][0], out[0]))

    hooks = [layer.module.register_forward_hook(note) for layer in decoder.layers]
    try:
        logits = forward(plain)
    finally:
        for hook in hooks:
            hook.remove()
    last = steps[-1][1][ours.logits_indices]
    with running([ours]):
        x = decoder.embed(ours.ids)
        angles = decoder.angles(ours.positions, x.dtype, ours.long)
        nothing = torch.zeros_like(x[:1, :1])
        pairs = [(x, steps[0][0], nothing), (decoder.logits(last), logits, nothing)]
        for layer, (given, expected) in zip(decoder.layers, steps, strict=True):
            pairs.append((layer(given, angles[layer.rope]), expected, given))
    return all(_is_close(*pair, limit) for pair in pairs)


def _is_close(found: Tensor, expected: Tensor, before: Tensor, limit: float) -> bool:
    """Whether each row is what it should be, up to rounding."""
    rounding = _ROUNDINGS * torch.finfo(expected.dtype).eps
    error, added = (found - expected).norm(dim=1), (expected - before).norm(dim=1)
    close = error <= limit * added + rounding * expected.norm(dim=1)
    ours, theirs = (found - before).double(), (expected - before).double()
    size = theirs.square().sum()
    scaled = ((ours * theirs).sum() - size).abs() <= MAX_SCALE * size
    return bool(close.all() & scaled)
