"""How a transformers model reads texts with its own memory.

Families differ in the name of the memory argument, and in what they must be told: the positions, or
that no token is padding. Some keep states as attributes of their modules. Some cannot continue with
several tokens at once, or with several texts. A `CallConvention` says which of these apply; the
check at loading (`own_check`) finds the right one.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from eab.caches.attention import attention_kernels
from eab.caches.own import RowsFor
from eab.caches.own_memory import BatchAxes, axes_of, tensors_of
from eab.formatting import reason_of
from eab.models.families import impossible_window
from eab.models.machine import is_out_of_memory
from eab.models.rows_elsewhere import without_rows
from eab.models.running_pass import running

_ARGUMENTS: Final = ("past_key_values", "cache_params", "state")


@dataclass(frozen=True, slots=True)
class CallConvention:
    """How to call a model, and what it can do."""

    positions: bool  # the model is given the positions
    mask: bool  # the model is told that no token is padding
    together: bool  # it reads several texts in one pass
    several: bool  # it continues with several tokens in one pass
    keeps: bool = True  # its memory is used; otherwise it reads whole texts


@dataclass(frozen=True, slots=True)
class _State:
    """A tensor that a module keeps as a plain attribute from one pass to the next."""

    module: nn.Module
    attribute: str
    name: str


class OwnReader:
    """Runs a model with its memory: its cache, and the states of its modules if there are any.

    Args:
        tokens: A short text, used to find out how the model keeps its memory.
        elsewhere: The layers whose K and V are kept by a cache of this project.

    Raises:
        Exception: Whatever the model raises for this text.
    """

    def __init__(
        self, model: PreTrainedModel, tokens: Sequence[int], elsewhere: Sequence[int] = ()
    ) -> None:
        self._model, self._elsewhere = model, elsewhere
        parameters = inspect.signature(model.forward).parameters
        self._accepted = set(parameters)
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            self._accepted.add("use_cache")
        self._argument = ""  # name of the memory argument; empty if there is none
        self._cache_class: type[DynamicCache] | None = None  # class of the model's own cache
        self.failure = ""  # why it cannot run with its memory; empty if it can
        self._states: list[_State] = []
        self.axes: BatchAxes = {}
        self.convention = next(self.conventions)
        self._find_out(torch.tensor([tokens], device=model.device))

    @property
    def keeps_memory(self) -> bool:
        """Whether it continues from a memory; otherwise it reads whole texts."""
        return bool(self._argument) and self.convention.keeps

    @property
    def together(self) -> bool:
        """Whether it reads several texts in one pass."""
        return self.convention.together

    @property
    def conventions(self) -> Iterator[CallConvention]:
        """The call conventions to try, best first."""
        given = {
            (positions and "position_ids" in self._accepted, mask): None
            for mask, positions in product((False, True), (True, False))
            if not mask or "attention_mask" in self._accepted
        }
        for (positions, mask), together, several in product(given, (True, False), (True, False)):
            yield CallConvention(positions, mask, together, several)
        for positions, mask in given:
            yield CallConvention(positions, mask, together=False, several=True, keeps=False)

    @torch.inference_mode()
    def _find_out(self, ids: Tensor) -> None:
        arguments = {"input_ids": ids, "use_cache": True}
        try:
            outputs = self._call(arguments)
        except Exception as error:
            impossible = impossible_window(self._model.config.get_text_config())
            if impossible or self._elsewhere or is_out_of_memory(error):
                raise
            self.failure = reason_of(error)
            self._call(arguments | {"use_cache": False})
            return
        names = [name for name in _ARGUMENTS if name in self._accepted]
        self._argument = next((name for name in names if outputs.get(name) is not None), "")
        if isinstance(cache := outputs.get("past_key_values"), DynamicCache):
            self._cache_class = type(cache)
        if not self._argument and "past_key_values" in names:  # some fill it without returning it
            cache = self._new_cache("past_key_values")
            self._call(arguments | {"past_key_values": cache})
            self._argument = "past_key_values" if tensors_of(cache) else ""
        before = _plain_tensors(self._model)
        self._call(arguments)
        self._states = [
            _State(module, attribute, name)
            for name, (module, attribute, tensor) in _plain_tensors(self._model).items()
            if name not in before or before[name][2] is not tensor
        ]
        with suppress(Exception):  # on failure it reads one text at a time
            of_one, of_two = (self.read(None, ids.repeat(rows, 1), 0, 1)[1] for rows in (1, 2))
            self.axes = axes_of(of_one, of_two)

    @torch.inference_mode()
    def plain(self, ids: Tensor) -> Tensor:
        """The logits of whole texts, (B, T, V), without a memory."""
        self._put_states({})
        try:
            logits: Tensor = self._call({"input_ids": ids, "use_cache": False}).logits
        finally:
            self._put_states({})
        return logits

    @torch.inference_mode()
    def read(
        self, memory: Any, ids: Tensor, start: int, keep: int, rows: RowsFor | None = None
    ) -> tuple[Tensor, Any]:
        """Run the model (see `eab.caches.own.ReadsTexts`)."""
        if self.convention.several or start == 0 or ids.shape[1] == 1:
            return self._read(memory, ids, start, keep, rows)
        kept = []
        for at in range(ids.shape[1]):
            logits, memory = self._read(memory, ids[:, at : at + 1], start + at, 1, rows)
            kept.append(logits)
        return torch.cat(kept[-keep:], dim=1), memory

    def _read(
        self, memory: Any, ids: Tensor, start: int, keep: int, rows: RowsFor | None
    ) -> tuple[Tensor, Any]:
        arguments = self._token_arguments(ids, start) | {"logits_to_keep": keep}
        arguments["use_cache"] = not self.failure
        cache, states = memory if self._states and memory is not None else (memory, {})
        if self._argument:
            cache = self._new_cache(self._argument) if memory is None else cache
            arguments[self._argument] = cache
        self._put_states(states)
        try:
            with nullcontext() if rows is None else running([rows(ids)]):
                outputs = self._call(arguments)
            states = {state.name: getattr(state.module, state.attribute) for state in self._states}
        finally:
            self._put_states({})
        if not self.keeps_memory:
            return outputs.logits[:, -keep:], None
        cache = outputs.get(self._argument, cache)
        return outputs.logits[:, -keep:], (cache, states) if self._states else cache

    def _token_arguments(self, ids: Tensor, start: int) -> dict[str, Tensor]:
        """The arguments that describe the tokens."""
        end, arguments = start + ids.shape[1], {"input_ids": ids}
        if self.convention.positions:
            arguments["position_ids"] = torch.arange(start, end, device=ids.device)[None]
        if self.convention.mask:
            arguments["attention_mask"] = torch.ones(
                (len(ids), end), dtype=ids.dtype, device=ids.device
            )
        return arguments

    def _call(self, arguments: dict[str, Any]) -> Any:
        known = {name: value for name, value in arguments.items() if name in self._accepted}
        model: Any = self._model
        with attention_kernels(model.device):
            return model(**known, return_dict=True)

    def _new_cache(self, argument: str) -> Any:
        """The cache that transformers' `generate` starts with; None where the model creates it."""
        model: Any = self._model
        if argument != _ARGUMENTS[0] or not model._supports_default_dynamic_cache():
            made = self._elsewhere and self._cache_class
            return without_rows(made(), self._elsewhere) if made else None
        cache = DynamicCache(config=model.config.get_text_config(decoder=True))
        return without_rows(cache, self._elsewhere) if self._elsewhere else cache

    def _put_states(self, states: dict[str, Tensor]) -> None:
        for state in self._states:
            setattr(state.module, state.attribute, states.get(state.name))


def _plain_tensors(model: nn.Module) -> dict[str, tuple[nn.Module, str, Tensor]]:
    """The tensors that modules keep as plain attributes: neither weights nor buffers."""
    return {
        f"{name}.{attribute}": (module, attribute, value)
        for name, module in model.named_modules()
        for attribute, value in vars(module).items()
        if isinstance(value, Tensor)
    }
