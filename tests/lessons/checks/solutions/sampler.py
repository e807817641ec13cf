"""Inverts the distribution."""

import torch


def sample(logits, generator, temperature, top_k, top_p):
    logits = logits / temperature
    if top_k and top_k < len(logits):
        logits[logits < logits.topk(top_k).values[-1]] = -torch.inf
    probabilities = logits.softmax(dim=0)
    if top_p < 1:
        falling, order = probabilities.sort(descending=True)
        probabilities[order[falling.cumsum(dim=0) - falling >= top_p]] = 0.0
    probabilities = probabilities / probabilities.sum()
    number = torch.rand((), generator=generator, dtype=torch.float64)
    return int(torch.searchsorted(probabilities.cumsum(dim=0), number, right=True))
