"""Whether a model asks for ordinary causal attention.

A cache lets each token read the earlier tokens of its own path, and nothing else. Logits that agree
with those of the plain model show this only within their rounding, which is large in 16 bits. What
a model asks of its attention function is exact in every data type.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from eab.caches.attention import attention_kernels
from eab.caches.shape import KVShape
from eab.errors import ModelError
from eab.formatting import reason_of
from eab.models.families import ADVICE
from eab.models.machine import is_out_of_memory

_POSITION_ERROR: Final = 1e-3  # relative; the two passes have the same shapes, so rounding is alike


class AttentionRecord:
    """What a model asked of its attention function in one forward pass without a cache."""

    def __init__(self) -> None:
        self.layers: list[int] = []  # of each call
        self.rows: set[tuple[int, int]] = set()  # KV heads and head sizes
        self.is_causal = True  # whether each call asked for causal attention

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
        self.is_causal &= _is_causal(module, key.shape[2], mask, arguments)


def _is_causal(
    module: nn.Module, length: int, mask: Tensor | None, arguments: Mapping[str, Any]
) -> bool:
    """The same rules as in transformers' sdpa_attention_forward.

    A mask of numbers is added to the scores, so it can also depend on the text.
    """
    if arguments.get("position_bias") is not None:
        return False
    if mask is None:
        told = arguments.get("is_causal")
        return bool(getattr(module, "is_causal", True) if told is None else told)
    triangle = torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
    return mask.dtype == torch.bool and bool((mask == triangle).all())


@torch.inference_mode()
def refuse_other_attention(model: PreTrainedModel, tokens: list[int], shape: KVShape) -> None:
    """Refuse a model whose layers do not each ask once for causal attention of the rows that its
    configuration describes, or whose positions do not begin at 0.
    """
    record = AttentionRecord()
    plain = _plain_logits(model, tokens, eab_record=record)
    positions = torch.arange(len(tokens), device=model.device)[None]
    placed = _plain_logits(model, tokens, position_ids=positions)
    reason = None
    if not record.layers or record.layers != list(range(shape.layers)):
        reason = "does not call the attention of transformers exactly once per layer"
    elif record.rows != {(shape.kv_heads, shape.head_dim)}:
        reason = "has keys and values whose sizes differ from its configuration (latent attention)"
    elif not record.is_causal:
        reason = "lets a token attend to later tokens, or adds to its attention scores"
    elif not (placed - plain).abs().max() <= _POSITION_ERROR * plain.abs().max():
        reason = "does not number the positions of a text from 0"
    if reason:
        raise ModelError(
            f"the model family {model.config.get_text_config().model_type!r} {reason}, which the "
            f"caches cannot serve. {ADVICE}"
        )


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
