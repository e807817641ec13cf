"""The model without a cache."""

from collections.abc import Sequence

import torch


@torch.inference_mode()
def plain_logits(pair, texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits after the last token of each text, from a full forward pass without a cache.

    All go through it at once: a token does not see those that fill up the shorter texts behind it.
    """
    longest = max(map(len, texts))
    filled = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    logits = pair.plain(filled, use_cache=False).logits
    return logits[range(len(texts)), [len(text) - 1 for text in texts]]
