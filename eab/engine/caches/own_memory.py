"""The memory of a model that keeps it in its own way: an object with tensors somewhere in it.

It may be a cache of K and V, of states of constant size, of both, or a list of states. Its tensors
are named by their place in it. Several texts of equal length can share an object: each has a row of
its own in every tensor, along the axis that `BatchAxes` names.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers.cache_utils import DynamicCache

BatchAxes = Mapping[str, int]  # by tensor name; a tensor that is not in it has no rows

_WASTE: Final = 1.25  # tensors that keep alive more than this many times their size are copied


def changed(memory: Any, change: Callable[[str, Tensor], Tensor]) -> Any:
    """A copy of a memory object, with `change(name, tensor)` in place of each tensor."""
    known: dict[int, Any] = {}

    def twin(value: Any, name: str) -> Any:
        if id(value) in known:
            return known[id(value)]
        if isinstance(value, Tensor):
            known[id(value)] = change(name, value)
            return known[id(value)]
        if isinstance(value, dict):
            return {key: twin(part, f"{name}.{key}") for key, part in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([twin(part, f"{name}.{at}") for at, part in enumerate(value)])
        if not _has_parts(value):
            return value
        known[id(value)] = other = copy.copy(value)
        vars(other).update({key: twin(part, f"{name}.{key}") for key, part in vars(value).items()})
        return other

    return twin(memory, "")


def _has_parts(value: Any) -> bool:
    """Whether it is an object of transformers that may hold tensors, but no model or settings."""
    if isinstance(value, nn.Module | type) or hasattr(value, "model_type"):
        return False
    return type(value).__module__.startswith("transformers.") and hasattr(value, "__dict__")


def tensors_of(memory: Any) -> dict[str, Tensor]:
    """The tensors of a memory object by name, each once."""
    tensors: dict[str, Tensor] = {}

    def note(name: str, tensor: Tensor) -> Tensor:
        tensors[name] = tensor
        return tensor

    changed(memory, note)
    return tensors


def bytes_of(memory: Any) -> int:
    """Bytes that its tensors keep allocated (measured)."""
    storages = [tensor.untyped_storage() for tensor in tensors_of(memory).values()]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def axes_of(of_one: Any, of_two: Any) -> BatchAxes:
    """The axis along which each tensor has its rows, from memories of one text and of two."""
    after = tensors_of(of_two)
    return {
        name: axis
        for name, tensor in tensors_of(of_one).items()
        for axis, size in enumerate(tensor.shape)
        if name in after and after[name].dim() == tensor.dim() and after[name].shape[axis] != size
    }


def rows_of(memory: Any, rows: Sequence[int], axes: BatchAxes) -> Any:
    """A copy with these rows, in this order; a row may occur more than once."""

    def selected(name: str, tensor: Tensor) -> Tensor:
        if name not in axes or not tensor.numel():
            return tensor.clone()
        index = torch.tensor(rows, dtype=torch.int64, device=tensor.device)
        return tensor.index_select(axes[name], index)

    return changed(memory, selected)


def joined(parts: Sequence[Any], axes: BatchAxes) -> Any:
    """One memory object with the rows of all parts, whose texts have equal length."""
    if len(parts) == 1:
        return parts[0]
    others = [tensors_of(part) for part in parts]

    def together(name: str, tensor: Tensor) -> Tensor:
        if name not in axes or not tensor.numel():
            return tensor.clone()
        return torch.cat([tensors[name] for tensors in others], dim=axes[name])

    return changed(parts[0], together)


def compact(memory: Any) -> Any:
    """The same memory, with copies of tensors that are small views of large ones, such as those of
    attention windows.
    """
    tensors = tensors_of(memory).values()
    if all(_is_compact(tensor) for tensor in tensors):
        return memory
    return changed(memory, lambda _, tensor: tensor if _is_compact(tensor) else tensor.clone())


def _is_compact(tensor: Tensor) -> bool:
    return tensor.untyped_storage().nbytes() <= _WASTE * tensor.nbytes


def can_be_cropped(memory: Any) -> bool:
    """Whether its last tokens can be removed, which requires K and V of all tokens."""
    kinds = {type(layer).__name__ for layer in getattr(memory, "layers", ())}
    whole = bool(kinds) and kinds <= {"DynamicLayer", "DummyLayer"}
    return whole and bool(memory.is_croppable)


def cropped(memory: Any, tokens: int) -> Any:
    """Remove the last tokens in place, from a memory that can be cropped; returns it."""
    memory.crop(-tokens)
    return compact(memory)


_SEEN: Final = "tokens_seen"  # attribute with the number of tokens in the text


def without_rows(cache: "DynamicCache", layers: Sequence[int]) -> "DynamicCache":
    """Stop these layers of a hybrid model's cache from storing K and V, whose rows a cache of this
    project has; they keep any states.
    """
    kind = cache.layer_class_to_replicate
    if kind is not None and not cache.layers:  # layers are created on first use
        cache.layer_class_to_replicate = _without_rows(kind)
        return cache
    for index in layers:
        layer = cache.layers[index]
        layer.__class__ = _without_rows(type(layer))
    return cache


def _without_rows(kind: type) -> type:
    """A subclass of this layer class that only counts the tokens."""
    methods = {
        "update": _update,
        "get_seq_length": _seen,
        "get_mask_sizes": _only_new,
        "__module__": kind.__module__,
    }
    return type(f"{kind.__name__}WithoutRows", (kind,), methods)


def _update(layer: Any, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    """Count the tokens; our attention function stores K and V."""
    vars(layer)[_SEEN] = _seen(layer) + key.shape[-2]
    return key, value


def _seen(layer: Any) -> int:
    """The number of tokens, from which families derive positions."""
    return int(vars(layer).get(_SEEN, 0))


def _only_new(_: Any, query_length: int) -> tuple[int, int]:
    """Sizes for transformers' mask; our caches use masks of their own."""
    return query_length, 0
