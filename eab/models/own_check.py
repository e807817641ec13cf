"""Checks a model that keeps its own memory: is it causal, and which call convention is right?

The reference is a full forward pass of transformers. The paths of the check fork, continue with one
or several tokens, and drop tokens, as in a run with draft tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from eab.caches.factory import make_cache
from eab.caches.own import OwnCache
from eab.caches.own_memory import bytes_of
from eab.caches.shape import KVShape, OwnMemory
from eab.errors import ModelError
from eab.formatting import reason_of
from eab.models.attention_calls import check_not_nan, naming_the_family
from eab.models.context import LONGEST_CHECKED_WINDOW
from eab.models.families import windows
from eab.models.machine import is_out_of_memory
from eab.models.own_reader import OwnReader
from eab.models.transformers_model import tokens_to_check

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
