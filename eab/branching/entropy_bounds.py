"""What the most likely tokens alone tell of an entropy.

Known are p_1 >= ... >= p_K of V tokens. What they leave, m = 1 - sum p, lies on V - K tokens, none
more likely than p_K. The entropy is the smallest if as few of them as possible have it, each p_K
and one the remainder; it is the largest if all of them have the same. Both can be so, so nothing
narrower is certain.
"""

import torch
from torch import Tensor


def entropy_bounds(log_probs: Tensor, vocab_size: int) -> Tensor:
    """The least and the largest entropy that a distribution can have.

    Args:
        log_probs: ln p of the K most likely tokens of each distribution, (P, K), in any order;
            minus infinity where fewer are known.
        vocab_size: V.

    Returns:
        (P, 2) float64, in nats.
    """
    logs = log_probs.double()
    probs = logs.exp()
    known = -torch.special.xlogy(probs, probs).sum(dim=-1)
    is_known = probs > 0
    unknown = vocab_size - is_known.sum(dim=-1)
    least = probs.masked_fill(~is_known, torch.inf).amin(dim=-1)  # p_K
    # Rounding must not leave less than nothing, nor more than the others can have.
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
