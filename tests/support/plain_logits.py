"""The model without a cache."""

from collections.abc import Sequence

import torch


@torch.inference_mode()
def plain_logits(pair, text: Sequence[int]) -> torch.Tensor:
    """Logits after the last token, from a full forward pass without a cache."""
    return pair.plain(torch.tensor([text]), use_cache=False).logits[0, -1]
