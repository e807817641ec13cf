"""Records how each layer of a model calls its attention function, and which earlier tokens each
token reads, according to the model's masks.

A cache lets each token read the earlier tokens of its own path, and nothing else. Comparing logits
with those of the plain model shows this only within rounding error, which is large in 16 bits. The
arguments of the attention calls are exact in every data type.

transformers builds a mask from a function of two positions. While a model is checked, this function
is recorded. So the mask is known for every length, without a pass over a long text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import sdpa_mask

from eab.engine.caches.attention import attention_kernels
from eab.engine.caches.shape import EVERYTHING, ORDINARY, KVShape, LayerAttention, Reach, RowShape
from eab.engine.models.configuration import ADVICE
from eab.engine.models.machine import is_out_of_memory
from eab.errors import ModelError
from eab.formatting import reason_of

MAX_POSITION: Final = 2**17  # longer contexts are checked up to here only
_NUMBER_OF_PROBES: Final = 16  # positions, in addition to those next to the limits


@dataclass(frozen=True, slots=True, eq=False)
class MaskRule:
    """A mask of one forward pass, and the function that built it."""

    mask: Tensor
    sees: Callable[..., Tensor]  # (text, head, position, earlier position) -> bool
    size: int  # of the window or chunk; 0 if there is none

    def made(self, mask: Tensor) -> bool:
        """Whether this mask is the rule's mask or a part of it."""
        return mask is self.mask or mask.data_ptr() == self.mask.data_ptr()

    def reach(self, context: int) -> Reach | None:
        """What the mask lets a token attend to, in texts of up to `context` tokens; None if the
        caches do not know such a reach.
        """
        known = [EVERYTHING]
        known += [Reach(window=self.size), Reach(chunk=self.size)] if self.size > 0 else []
        last = min(context, MAX_POSITION) - 1
        return next((reach for reach in known if self._agrees(reach, last)), None)

    def _agrees(self, reach: Reach, last: int) -> bool:
        near = [factor * self.size + more for factor in (1, 2, 3) for more in (-2, -1, 0, 1)]
        even = np.linspace(0, last, _NUMBER_OF_PROBES, dtype=np.int64).tolist()
        probes = {at for at in (*range(3), *near, *even) if 0 <= at <= last}
        return all(self._agrees_at(reach, at) for at in sorted(probes))

    def _agrees_at(self, reach: Reach, at: int) -> bool:
        """Compare at one position, including the next tokens, which must stay hidden."""
        rows = np.arange(at + 3)
        expected = reach.sees(np.array([at]), rows)[0] & (rows <= at)
        device, zero = self.mask.device, torch.zeros((), dtype=torch.int64)
        numbers = (zero, zero, torch.tensor(at), torch.from_numpy(rows))
        try:
            seen = self.sees(*(number.to(device) for number in numbers))
        except (IndexError, RuntimeError):  # it depends on the text
            return False
        return bool((seen.cpu() == torch.from_numpy(expected)).all())


def cache_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """Mask function for transformers: its own for SDPA, recorded while a model is checked."""
    record = _record.get()
    if record is None:
        plain: Tensor | None = sdpa_mask(*args, **kwargs)
        return plain
    kwargs |= {"allow_is_causal_skip": False}
    mask = sdpa_mask(*args, **kwargs)
    if mask is not None and "mask_function" in kwargs:
        size = int(kwargs.get("local_size") or 0)
        record.rules.append(MaskRule(mask, kwargs["mask_function"], size))
    return mask


# How much two passes may differ, relative to the largest logit: given positions, transformers makes
# another mask, and CUDA chooses another kernel, which rounds narrow numbers differently.
_POSITION_ERROR: Final = {torch.float64: 1e-3, torch.float32: 1e-3}
_POSITION_ERROR_OF_NARROW: Final = 0.1


class AttentionRecord:
    """The calls that a model makes to its attention function in one forward pass without a cache.

    Args:
        context: The longest text for which the masks matter.
    """

    def __init__(self, context: int = 1) -> None:
        self._context = context
        self.rules: list[MaskRule] = []  # of the masks that are built during the pass
        self._known: dict[int, Reach | None] = {}  # by the index of the mask's rule
        self.layers: list[int] = []  # layer index of each call
        self.attention: list[LayerAttention | None] = []  # per call; None if no cache can serve it
        self._stored: list[tuple[Tensor, Tensor]] = []  # K and V of each call

    def add(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        arguments: Mapping[str, Any],
    ) -> None:
        """Record one call."""
        self.layers.append(int(module.layer_idx))  # type: ignore[arg-type]
        groups = key.shape[1]
        rows = RowShape(groups, key.shape[3], value.shape[3], query.shape[1] // groups)
        source = next((i for i, (k, v) in enumerate(self._stored) if k is key and v is value), -1)
        self._stored.append((key, value))
        reach = self._reach(module, key.shape[2], mask, arguments)
        cap, sinks = arguments.get("softcap"), arguments.get("s_aux")
        scores = (float(cap or 0.0), () if sinks is None else tuple(sinks.double().tolist()))
        self.attention.append(
            None if reach is None else LayerAttention(reach, *scores, rows, source)
        )

    def _reach(
        self, module: nn.Module, length: int, mask: Tensor | None, arguments: Mapping[str, Any]
    ) -> Reach | None:
        """Apply the rules of transformers' sdpa_attention_forward.

        A numeric mask is added to the scores, so it can also depend on the text.
        """
        if arguments.get("position_bias") is not None:
            return None
        if mask is None:
            told = arguments.get("is_causal")
            causal = getattr(module, "is_causal", True) if told is None else told
            return EVERYTHING if causal else None
        index = next((at for at, rule in enumerate(self.rules) if rule.made(mask)), -1)
        if index not in self._known:
            rule = self.rules[index] if index >= 0 else None
            self._known[index] = rule.reach(self._context) if rule is not None else EVERYTHING
        reach = self._known[index]
        return reach if reach is not None and _is_mask_of(reach, length, mask) else None


_record: ContextVar[AttentionRecord | None] = ContextVar("record", default=None)


def current_record() -> AttentionRecord | None:
    """The record to add attention calls to while a model is checked; None otherwise."""
    return _record.get()


@contextmanager
def recording(context: int = 1) -> Iterator[AttentionRecord]:
    """Record the masks and the attention calls in the block."""
    record = AttentionRecord(context)
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


def _is_mask_of(reach: Reach, length: int, mask: Tensor) -> bool:
    seen = torch.from_numpy(reach.causal(length, length))
    return mask.dtype == torch.bool and bool((mask.cpu() == seen).all())


@torch.inference_mode()
def read_attention(model: PreTrainedModel, tokens: list[int], context: int) -> KVShape:
    """The rows that a cache of this model stores, and the attention of each layer.

    Raises:
        ModelError: Some layer does not call attention exactly once, or in a way that the caches
            know, or positions do not start at 0.
    """
    record, plain = note_attention(model, tokens, context)
    layers = [layer for layer in record.attention if layer is not None]
    config, reason, count = model.config.get_text_config(), None, len(record.layers)
    if not count:
        reason = "has no attention that accepts another cache (it is recurrent, or has its own)"
    elif record.layers != [*range(count)] or count not in _depths(config):
        reason = "does not call the attention of transformers exactly once per layer"
    elif len(layers) < count:
        reason = (
            "lets a token read later tokens, or earlier ones by an unknown rule, or adds to its "
            "attention scores"
        )
    elif not _counts_from_0(model, tokens, plain):
        reason = "does not number the positions of a text from 0"
    if reason:
        raise ModelError(
            f"the model family {config.model_type!r} {reason}, which the caches cannot serve. "
            f"{ADVICE}"
        )
    return shape_of(layers, model)


@torch.inference_mode()
def note_attention(
    model: PreTrainedModel, tokens: list[int], context: int
) -> tuple[AttentionRecord, Tensor]:
    """Run a pass without a cache. Return its attention calls and its logits."""
    with recording(context) as record:
        return record, _plain_logits(model, tokens)


def _counts_from_0(model: PreTrainedModel, tokens: list[int], plain: Tensor) -> bool:
    """Whether the logits are the same with positions 0, 1, 2 ..."""
    positions = torch.arange(len(tokens), device=model.device)[None]
    placed = _plain_logits(model, tokens, position_ids=positions)
    limit = _POSITION_ERROR.get(model.dtype, _POSITION_ERROR_OF_NARROW)
    return bool((placed - plain).abs().max() <= limit * plain.abs().max())


def _depths(config: Any) -> set[int]:
    """The layer counts that the configuration may mean; an encoder-decoder has two of them."""
    names = ("num_hidden_layers", "decoder_layers", "num_decoder_layers")
    return {int(getattr(config, name, None) or 0) for name in names} - {0}


def shape_of(layers: Sequence[LayerAttention], model: PreTrainedModel) -> KVShape:
    """The KV shape for these layers."""
    rows = layers[0].rows
    assert rows is not None
    if rows.key_dim == rows.value_dim and {layer.rows for layer in layers} == {rows}:
        layers = [replace(layer, rows=None) for layer in layers]
    return KVShape(
        layers=len(layers),
        kv_heads=rows.kv_heads,
        head_dim=rows.key_dim,
        dtype=model.dtype,
        device=model.device,
        group=rows.group,
        attention=() if set(layers) == {ORDINARY} else tuple(layers),
    )


def _plain_logits(model: PreTrainedModel, tokens: list[int], **arguments: Any) -> Tensor:
    """The logits of a forward pass without a cache, in float32."""
    with naming_the_family(model), attention_kernels(model.device):
        ids = torch.tensor([tokens], device=model.device)
        logits: Tensor = model(ids, use_cache=False, **arguments).logits
    check_not_nan(logits, model)
    return logits.float()


@contextmanager
def naming_the_family(model: PreTrainedModel) -> Iterator[None]:
    """Turn an error of the model into a ModelError that names its family, except out of memory."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # any kernel may raise
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"the model family {model.config.get_text_config().model_type!r} does not run in "
            f"{model.dtype} on {model.device} ({reason_of(error)}). Choose another dtype or device"
        ) from error


def check_not_nan(logits: Tensor, model: PreTrainedModel) -> None:
    """Raise ModelError if any logit is NaN."""
    if logits.isnan().any():
        raise ModelError(
            f"the model family {model.config.get_text_config().model_type!r} computes NaN logits "
            f"in {model.dtype}: its weights are damaged"
            + (", or too large for it. Choose bfloat16" if model.dtype == torch.float16 else "")
        )
