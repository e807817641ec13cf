"""How many draft tokens the target model accepts by the rule of speculative sampling.

Leviathan et al. 2023, algorithm 1: a draft token x is accepted with probability min(1, p(x) /
q(x)), where p is the target's distribution and q the draft model's. The first rejection ends the
draft. This rule keeps the target's distribution of texts. The rate is therefore measured on real
drafts, not estimated from the overlap of p and q.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from training.probe import Prober

BATCH = 32


def accepted_lengths(
    target: Prober, draft: Prober, prefixes: Sequence[Sequence[int]], length: int, seed: int
) -> list[int]:
    """After each prefix, how many of `length` tokens sampled from the draft the target accepts."""
    generator = torch.Generator().manual_seed(seed)
    ordered = sorted(prefixes, key=len)  # so that batches need little padding
    accepted: list[int] = []
    for at in range(0, len(ordered), BATCH):
        accepted += _accepted(target, draft, ordered[at : at + BATCH], length, generator)
    return accepted


def acceptance_rate(accepted: Sequence[int], length: int) -> float:
    """The acceptance rate at this draft length, which may be shorter than the measured length."""
    return sum(min(count, length) for count in accepted) / (length * len(accepted))


@torch.no_grad()
def _accepted(
    target: Prober,
    draft: Prober,
    prefixes: Sequence[Sequence[int]],
    length: int,
    generator: torch.Generator,
) -> list[int]:
    """Accepted lengths of a batch, padded on the right, where causal attention does not look."""
    starts = torch.tensor([len(prefix) for prefix in prefixes])
    ids = torch.zeros(len(prefixes), int(starts.max()) + length, dtype=torch.int64)
    for line, prefix in enumerate(prefixes):
        ids[line, : len(prefix)] = torch.tensor(prefix)
    lines = torch.arange(len(prefixes))
    draft_tokens = []
    for offset in range(length):
        q = _probabilities(draft, ids, starts[:, None] + offset - 1)[:, 0]
        token = torch.multinomial(q, 1, generator=generator)[:, 0]
        ids[lines, starts + offset] = token
        draft_tokens.append(q[lines, token])
    places = starts[:, None] + torch.arange(length)
    tokens = ids.gather(1, places)
    p = _probabilities(target, ids, places - 1).gather(2, tokens[:, :, None])[:, :, 0]
    q_of_tokens = torch.stack(draft_tokens, dim=1)
    kept = torch.rand(tokens.shape, generator=generator) < p / q_of_tokens
    return [int(count) for count in kept.long().cumprod(dim=1).sum(dim=1)]


def _probabilities(prober: Prober, ids: Tensor, places: Tensor) -> Tensor:
    """Next-token probabilities after each position in `places`: (lines, n) -> (lines, n, V)."""
    logits = prober.model(
        input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False
    ).logits
    chosen: Tensor = logits[torch.arange(len(ids))[:, None], places]
    return chosen.float().softmax(-1)
