"""How a transformers model reads texts with its own memory.

Families differ in the name of the memory argument, and in what they must be told: the positions, or
that no token is padding. Some keep states as attributes of their modules. Some cannot continue with
several tokens at once, or with several texts. A `CallConvention` says which of these apply; the
check at loading finds the right one, and whether the model is causal.

Its reference is a full forward pass of transformers. The paths of the check fork, continue with one
or several tokens, and drop tokens, as in a run with draft tokens.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from eab.engine.caches.attention import attention_kernels
from eab.engine.caches.factory import make_cache
from eab.engine.caches.own import OwnCache, RowsFor
from eab.engine.caches.own_memory import BatchAxes, axes_of, bytes_of, tensors_of, without_rows
from eab.engine.caches.shape import KVShape, OwnMemory
from eab.engine.models.attention_calls import check_not_nan, naming_the_family
from eab.engine.models.cache_attention import running
from eab.engine.models.configuration import LONGEST_CHECKED_WINDOW, impossible_window, windows
from eab.engine.models.machine import is_out_of_memory
from eab.engine.models.transformers_model import tokens_to_check
from eab.errors import ModelError
from eab.formatting import reason_of

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
        """Run the model (see `eab.engine.caches.own.ReadsTexts`)."""
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


_NO_LIMIT: Final = 2**50
# The largest relative error of a logit: families that compute in float32 reach 3e-5. Weights and
# activations in fewer bits have their own limit, above _ROUGH.
_PRECISE, _ROUGH = 1e-4, 1e-3
_LONGEST: Final = 40  # tokens of the check text, if nothing in the model depends on the length
_CONTINUED: Final = 29  # of these, at most so many are read after the first pass of a path
_CROSSED: Final = 25  # tokens of the check text beyond a window, so that a path crosses its end
_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def checked_reader(
    model: PreTrainedModel,
    vocab_size: int,
    context: int,
    max_error: float,
    rows: KVShape | None = None,
) -> OwnReader:
    """A reader whose call convention gives the logits of a full forward pass.

    Args:
        rows: The shape of the attention layers if a tree cache keeps their rows, not the model.

    Raises:
        ModelError: No convention does, the model lets a token read later ones, computes NaN, or
            does not run at all.
    """
    config = model.config.get_text_config()
    crossing = (
        size + _CROSSED for size in windows(config).values() if size <= LONGEST_CHECKED_WINDOW
    )
    family, length = str(config.model_type), min(context, max((_LONGEST, *crossing)))
    tokens = tokens_to_check(length, vocab_size)
    with naming_the_family(model):
        elsewhere = rows.own.shared_layers if rows is not None and rows.own is not None else ()
        reader = OwnReader(model, tokens[: max(1, length // 4)], elsewhere)
        plain = _plain_logits(reader, tokens, model.device)
    check_not_nan(plain, model)
    if _reads_later_tokens(reader, model, tokens, plain):
        raise ModelError(
            f"the model family {family!r} lets a token read later ones; the engine needs a "
            "decoder-only model"
        )
    limit = _PRECISE if max_error <= _ROUGH else max_error
    problems: list[str] = []
    for convention in reader.conventions:
        if rows is not None and not (convention.together and convention.keeps):
            continue  # a tree cache needs all paths of a pass together
        reader.convention = convention
        try:
            relative_error = _error(reader, tokens, model, rows)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            problems.append(reason_of(error))
            continue
        if relative_error < limit:
            return reader
        problems.append(f"relative error {relative_error:.2g}")
    raise ModelError(
        f"the model family {family!r} gives different logits for a text in parts than in one pass "
        f"({problems[0]})"
    )


def measured_memory(reader: OwnReader, device: torch.device, context: int) -> OwnMemory:
    """Memory of one text in bytes: the part that grows with it, and the part that does not."""
    short, long = min(8, context - 1), min(_LONGEST, context)
    sizes = [
        bytes_of(
            reader.read(None, torch.zeros((1, length), dtype=torch.int64, device=device), 0, 1)[1]
        )
        for length in (short, long)
    ]
    row = max(0, -(-(sizes[1] - sizes[0]) // (long - short)))
    return OwnMemory(row, max(0, sizes[0] - short * row), not reader.convention.several)


def _plain_logits(reader: OwnReader, tokens: Sequence[int], device: torch.device) -> Tensor:
    """The logits of all tokens in a full forward pass, in float32 or float64."""
    logits = reader.plain(torch.tensor([[*tokens]], device=device))[0]
    return logits if logits.dtype == torch.float64 else logits.float()


def _reads_later_tokens(
    reader: OwnReader, model: PreTrainedModel, tokens: Sequence[int], plain: Tensor
) -> bool:
    """Whether changing the second half of the text changes the logits before it. In passes of the
    same shape rounding is equal, except that experts process other groups of tokens.

    The whole half is changed, because a family may ignore single tokens, as XLM does with the last
    ones of a text that contains its padding token.
    """
    half = len(tokens) // 2
    other = [*tokens[:half], *((token + 1) % plain.shape[1] for token in tokens[half:])]
    change = (_plain_logits(reader, other, model.device) - plain)[:half].abs()
    config = model.config.get_text_config()
    exact = model.device.type == "cpu" and not any(getattr(config, name, 0) for name in _EXPERTS)
    tolerance = 1e-6 if exact else 64 * torch.finfo(model.dtype).eps
    return len(tokens) > 1 and bool(change.max() > tolerance * plain.abs().max())


@torch.inference_mode()
def _error(
    reader: OwnReader, tokens: Sequence[int], model: PreTrainedModel, rows: KVShape | None
) -> float:
    """The largest error of a logit, relative to the largest logit at its position."""
    shape = rows or KVShape(1, 1, 1, model.dtype, model.device, own=OwnMemory(0, 0))
    if shape.own is not None:
        shape = replace(shape, own=replace(shape.own, whole_prompts=not reader.convention.several))
    cache = make_cache("tree", shape, 1, _NO_LIMIT)
    assert isinstance(cache, OwnCache)
    texts: dict[int, list[int]] = {0: []}
    largest = 0.0
    for path, kept in _passes(cache, texts, tokens, reader):
        plain = _plain_logits(reader, texts[path], model.device)[-len(kept) :]
        error = (kept.to(plain.dtype) - plain).abs().amax(-1) / plain.abs().amax(-1).clamp(min=1.0)
        if not error.max() <= largest:
            largest = float(error.max())
        if largest != largest:
            return largest
    return largest


def _passes(
    cache: OwnCache, texts: dict[int, list[int]], tokens: Sequence[int], reader: OwnReader
) -> Iterator[tuple[int, Tensor]]:
    """The logits of each path in the passes of the check; updates `texts`."""
    half = max(1, len(tokens) // 2)

    def read(new: dict[int, Sequence[int]], keep: int = 1) -> Iterator[tuple[int, Tensor]]:
        cache.prepare([*new], [*new.values()], [keep] * len(new))
        for path, part in new.items():
            texts[path] = [*texts[path], *part]
        logits = cache.read(reader).split(keep)
        yield from zip(new, logits, strict=True)

    def fork(path: int, children: Sequence[int]) -> None:
        cache.fork(path, children)
        texts.update(dict.fromkeys(children, texts.pop(path)))

    first = max(half // 2 + 1, len(tokens) - _CONTINUED)
    start, rest = tokens[:first], [*tokens[first:]]
    yield from read({0: start})
    if len(rest) < 9:
        for token in rest:
            yield from read({0: [token]})
        return
    yield from read({0: rest[:3]})
    fork(0, (1, 2, 3))
    yield from read({path: [rest[path + 2]] for path in (1, 2, 3)})
    cache.release(2)
    yield from read({path: rest[4 + path : 7 + path] for path in (1, 3)}, keep=3)
    cache.trim(3, len(texts[3]) - 2)
    texts[3] = texts[3][:-2]
    yield from read({1: [rest[0]], 3: [rest[1]]})
    yield from read({1: [rest[2]], 3: [rest[3]]})
