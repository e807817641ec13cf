"""Bounds of an entropy if only the most likely tokens are known.

p_1 >= ... >= p_K of V tokens are known. The other V - K tokens have the probability m = 1 - sum p
together, and none of them is more likely than p_K. The entropy is smallest if as few of them as
possible share m: each has p_K, and one the remainder. It is largest if all are equally likely. Both
cases are possible, so no narrower bounds are certain.
"""

import torch
from torch import Tensor


def entropy_bounds(log_probs: Tensor, vocab_size: int) -> Tensor:
    """The smallest and largest entropy that each distribution can have, (P, 2) float64, in nats.

    Args:
        log_probs: ln p of the K most likely tokens of each distribution, (P, K), in any order;
            minus infinity where fewer are known.
        vocab_size: V.
    """
    logs = log_probs.double()
    probs = logs.exp()
    known = -torch.special.xlogy(probs, probs).sum(dim=-1)
    is_known = probs > 0
    unknown = vocab_size - is_known.sum(dim=-1)
    least = probs.masked_fill(~is_known, torch.inf).amin(dim=-1)  # p_K
    # Rounding must not make it negative, nor more than the other tokens can have.
    left = (1.0 - probs.sum(dim=-1)).clamp(min=0.0).minimum(unknown * least)
    whole = (left / least).floor()
    remainder = (left - whole * least).clamp(min=0.0)
    low = (
        known
        - whole * torch.special.xlogy(least, least)
        - torch.special.xlogy(remainder, remainder)
    )
    even = left / unknown.clamp(min=1)
    high = known - torch.special.xlogy(left, even)
    return torch.stack([low, torch.maximum(low, high)], dim=-1).clamp(min=0.0)
