"""Where our decoder stands in for transformers' code: where it computes the same, and while nobody
watches or changes the modules that it was made from.

It is compared at loading, at small and at large positions: the embedding, what each layer makes of
the same input, and the logits.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from eab.engine.caches.base import ForwardBatch
from eab.engine.models.cache_attention import running
from eab.engine.models.decoder import Decoder
from eab.engine.models.fingerprint import is_watched
from eab.engine.models.machine import is_out_of_memory

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
