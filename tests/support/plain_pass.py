"""The model without any cache."""

from collections.abc import Sequence

import torch


@torch.inference_mode()
def read_plainly(pair, text: Sequence[int]) -> torch.Tensor:
    """Logits after the last token, from a full forward pass without any cache."""
    return pair.plain(torch.tensor([text]), use_cache=False).logits[0, -1]
