"""Where our decoder stands in for transformers' code: where it computes the same, and as long as
nobody watches or changes the modules that it was made from.

It is compared at loading: the embedding, what each layer adds to the same input, and the logits,
at small and at large positions.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from eab.caches.base import ForwardBatch
from eab.models.decoder import Decoder
from eab.models.running_pass import running

# How much a row may differ, relative to what a layer adds to it. Where inputs are rounded, another
# rounding error of floats may change one by a whole step.
MAX_ERROR: Final = 1e-4
MAX_ERROR_OF_ROUNDED: Final = 0.05
_ROUNDINGS: Final = 4  # of a sum in its dtype

Forward = Callable[[ForwardBatch], Tensor]
_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS: Final = (
    nn.modules.module._global_forward_hooks,
    nn.modules.module._global_forward_pre_hooks,
)
# Attributes of every module that do not change what it computes
_NEVER_CHANGED: Final = nn.Module().__dict__.keys()
_FORWARD: Final = attrgetter("forward")
_DTYPE: Final = attrgetter("dtype")


class OwnDecoder:
    """The decoder of a model while it can stand in for transformers' code."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Raises AttributeError, TypeError or ValueError if the model is of another kind."""
        if any(map(_is_watched, model.modules())):
            raise ValueError("other code watches the model")
        decoder = Decoder(model)
        self._made: tuple[Decoder, Snapshot] | None = (decoder, Snapshot(model))

    def current(self) -> Decoder | None:
        """The decoder; None while there are hooks, or if something has changed."""
        if self._made is None or self._made[1].has_other_hooks():
            return None
        decoder, snapshot = self._made
        if snapshot.is_unchanged():
            return decoder
        self._made = None
        return None


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
    try:
        own = OwnDecoder(model)
        limit = MAX_ERROR_OF_ROUNDED if is_rounded or model.dtype.itemsize < 4 else MAX_ERROR
        pairs = zip(batches(), batches(), strict=True)
        return own if all(_agrees(own, forward, *pair, limit) for pair in pairs) else None
    except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return None


def _agrees(
    own: OwnDecoder, forward: Forward, plain: ForwardBatch, ours: ForwardBatch, limit: float
) -> bool:
    decoder, steps = own.current(), list[tuple[Tensor, Tensor]]()
    assert decoder is not None

    def note(_: nn.Module, given: tuple[Any, ...], out: Tensor) -> None:
        steps.append((given[0][0], out[0]))

    hooks = [layer.module.register_forward_hook(note) for layer in decoder.layers]
    try:
        logits = forward(plain)
    finally:
        for hook in hooks:
            hook.remove()
    with running([ours]):
        found = decoder.embed(ours.ids)
        angles = decoder.angles(ours.positions, found.dtype, ours.long)
        if not _is_close(found, steps[0][0], torch.zeros_like(found), limit):
            return False
        for layer, (x, expected) in zip(decoder.layers, steps, strict=True):
            if not _is_close(layer(x, angles[layer.rope]), expected, x, limit):
                return False
        last = decoder.logits(steps[-1][1][ours.logits_indices])
    return _is_close(last, logits, torch.zeros_like(logits), limit)


def _is_close(found: Tensor, expected: Tensor, before: Tensor, limit: float) -> bool:
    """Whether each row is what it should be, up to rounding."""
    rounding = _ROUNDINGS * torch.finfo(expected.dtype).eps
    error, added = (found - expected).norm(dim=1), (expected - before).norm(dim=1)
    return bool((error <= limit * added + rounding * expected.norm(dim=1)).all())


def _is_watched(module: nn.Module) -> bool:
    """Whether code of others runs in the module."""
    hooks = [hook for name in _HOOKS for hook in vars(module)[name].values()]
    ours = all(str(getattr(hook, "__module__", "")).startswith("eab.") for hook in hooks)
    return not ours or "forward" in vars(module)


class Snapshot:
    """The modules, weights and hooks of a model at one time."""

    def __init__(self, model: nn.Module) -> None:
        self._attributes = [vars(module) for module in model.modules()]
        self._hooks = self._hooks_now()
        parts = [*model.modules()][1:]
        held = [(each._parameters, each._buffers, each._modules) for each in model.modules()]
        self._dicts = [*chain.from_iterable(held), *map(vars, parts)]
        self._sizes = [*map(len, self._dicts)]
        entries = [
            (known, name, value)
            for known in self._dicts
            for name, value in known.items()
            if name not in _NEVER_CHANGED
        ]
        self._places, self._names, self._values = zip(*entries, strict=True)
        self._modules, self._types = [*model.modules()], [*map(type, model.modules())]
        tensors = [value for value in self._values if isinstance(value, Tensor)]
        self._tensors = [each for each in tensors if each.layout == torch.strided]
        self._views = self._views_now()
        self._classes = [*dict.fromkeys(self._types)]
        self._forwards = [*map(_FORWARD, self._classes)]

    def has_other_hooks(self) -> bool:
        """Whether hooks were added, to a module or to all."""
        return any(_GLOBAL_HOOKS) or self._hooks_now() != self._hooks

    def is_unchanged(self) -> bool:
        """Whether modules and weights are as they were: asked in every pass, so without loops."""
        return (
            [*map(len, self._dicts)] == self._sizes
            and all(map(is_, map(dict.get, self._places, self._names), self._values))
            and [*map(type, self._modules)] == self._types
            and [*map(_FORWARD, self._classes)] == self._forwards
            and self._views_now() == self._views
        )

    def _hooks_now(self) -> list[int]:
        return [*chain(*(map(len, map(itemgetter(name), self._attributes)) for name in _HOOKS))]

    def _views_now(self) -> list[object]:
        """What `.data` may have changed in each tensor."""
        tensors = self._tensors
        views = map(Tensor.data_ptr, tensors), map(Tensor.stride, tensors), map(_DTYPE, tensors)
        return [*chain(*views)]
