"""What a model asks of its attention, layer by layer.

A cache lets each token read the earlier tokens of its own path, and nothing else. Logits that agree
with those of the plain model show this only within their rounding, which is large in 16 bits. What
a model asks of its attention function is exact in every data type.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from eab.caches.attention import attention_kernels
from eab.caches.layers import EVERYTHING, ORDINARY, LayerAttention, Reach
from eab.caches.shape import KVShape
from eab.errors import ModelError
from eab.formatting import reason_of
from eab.models.families import ADVICE
from eab.models.machine import is_out_of_memory
from eab.models.masks import MaskRule, noting_masks

_POSITION_ERROR: Final = 1e-3  # relative; the two passes have the same shapes, so rounding is alike


class AttentionRecord:
    """What a model asked of its attention function in one forward pass without a cache.

    Args:
        rules: Of the masks that are made during the pass.
        context: Up to which length of texts the masks matter.
    """

    def __init__(self, rules: Sequence[MaskRule] = (), context: int = 1) -> None:
        self._rules, self._context = rules, context
        self._known: dict[int, Reach | None] = {}  # by the mask's rule
        self.layers: list[int] = []  # of each call
        self.rows: set[tuple[int, int]] = set()  # KV heads and head sizes
        self.attention: list[LayerAttention | None] = []  # of each call; None if no cache serves it

    def add(
        self,
        module: nn.Module,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        arguments: Mapping[str, Any],
    ) -> None:
        """Note one call."""
        self.layers.append(int(module.layer_idx))  # type: ignore[arg-type]
        self.rows |= {(tensor.shape[1], tensor.shape[3]) for tensor in (key, value)}
        reach = self._reach(module, key.shape[2], mask, arguments)
        cap, sinks = arguments.get("softcap"), arguments.get("s_aux")
        scores = (float(cap or 0.0), () if sinks is None else tuple(sinks.double().tolist()))
        self.attention.append(None if reach is None else LayerAttention(reach, *scores))

    def _reach(
        self, module: nn.Module, length: int, mask: Tensor | None, arguments: Mapping[str, Any]
    ) -> Reach | None:
        """The same rules as in transformers' sdpa_attention_forward.

        A mask of numbers is added to the scores, so it can also depend on the text.
        """
        if arguments.get("position_bias") is not None:
            return None
        if mask is None:
            told = arguments.get("is_causal")
            causal = getattr(module, "is_causal", True) if told is None else told
            return EVERYTHING if causal else None
        index = next((at for at, rule in enumerate(self._rules) if rule.made(mask)), -1)
        if index not in self._known:
            rule = self._rules[index] if index >= 0 else None
            self._known[index] = rule.reach(self._context) if rule is not None else EVERYTHING
        reach = self._known[index]
        return reach if reach is not None and _is_mask_of(reach, length, mask) else None


def _is_mask_of(reach: Reach, length: int, mask: Tensor) -> bool:
    positions = np.arange(length)
    seen = (positions <= positions[:, None]) & reach.sees(positions, positions)
    return mask.dtype == torch.bool and bool((mask.cpu() == torch.from_numpy(seen)).all())


@torch.inference_mode()
def read_attention(
    model: PreTrainedModel, tokens: list[int], shape: KVShape, context: int
) -> tuple[LayerAttention, ...]:
    """The attention of each layer; none if all layers have the ordinary one.

    Raises:
        ModelError: The layers do not each ask once for an attention that the caches know, of the
            rows that the model's configuration describes, or positions do not begin at 0.
    """
    with noting_masks() as rules:
        record = AttentionRecord(rules, context)
        plain = _plain_logits(model, tokens, eab_record=record)
    positions = torch.arange(len(tokens), device=model.device)[None]
    placed = _plain_logits(model, tokens, position_ids=positions)
    reason = None
    if not record.layers or record.layers != list(range(shape.layers)):
        reason = "does not call the attention of transformers exactly once per layer"
    elif record.rows != {(shape.kv_heads, shape.head_dim)}:
        reason = "has keys and values whose sizes differ from its configuration (latent attention)"
    elif None in record.attention:
        reason = (
            "lets a token read later tokens, or earlier ones by an unknown rule, or adds to its "
            "attention scores"
        )
    elif not (placed - plain).abs().max() <= _POSITION_ERROR * plain.abs().max():
        reason = "does not number the positions of a text from 0"
    if reason:
        raise ModelError(
            f"the model family {model.config.get_text_config().model_type!r} {reason}, which the "
            f"caches cannot serve. {ADVICE}"
        )
    layers = tuple(layer for layer in record.attention if layer is not None)
    return layers if set(layers) != {ORDINARY} else ()


def _plain_logits(model: PreTrainedModel, tokens: list[int], **arguments: Any) -> Tensor:
    """Of a forward pass without a cache, in float32."""
    try:
        ids = torch.tensor([tokens], device=model.device)
        with attention_kernels(model.device):
            logits: Tensor = model(ids, use_cache=False, **arguments).logits
    except ModelError:
        raise
    except Exception as error:  # of any kernel
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"the model family {model.config.get_text_config().model_type!r} does not run in "
            f"{model.dtype} on {model.device} ({reason_of(error)}). Choose another dtype or device"
        ) from error
    if logits.isnan().any():
        raise ModelError(
            f"the model family {model.config.get_text_config().model_type!r} computes NaN logits "
            f"in {model.dtype}: its weights are damaged"
            + (", or too large for it. Choose bfloat16" if model.dtype == torch.float16 else "")
        )
    return logits.float()
