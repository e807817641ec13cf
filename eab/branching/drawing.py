"""Draws from processed distributions, by inverting each in token order.

A draw first finds the block of tokens in which the running sum of probabilities passes its random
number, then the token in it. It does so on the host, in NumPy, because the arrays are small, and
each of the sixty operations of PyTorch would take longer to call than to compute. From another
device, the distributions are copied: a few milliseconds for a hundred paths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK: Final = 256  # tokens

_Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Distributions:
    """The input of draws: P rows of V tokens, in B blocks."""

    scores: Tensor  # (P, V)
    probs: Tensor  # (P, V)
    blocks: Tensor  # (P, B): the probability of each block of tokens
    best: Tensor  # (P,): the score of the most likely token
    log_total: Tensor  # (P,): ln of the sum of the exponentials of the scores minus `best`


def block_sums(probs: Tensor) -> Tensor:
    """Probability of each block of tokens, (P, B)."""
    whole = probs.shape[1] // BLOCK * BLOCK
    blocks = probs[:, :whole].view(len(probs), -1, BLOCK).sum(dim=-1)
    return torch.cat([blocks, probs[:, whole:].sum(dim=-1, keepdim=True)], dim=1)


def largest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest numbers of each row, descending, and their columns, (P, count) each: as `topk`,
    which is slow over a vocabulary, but only among the blocks with the largest maxima.
    """
    whole = rows.shape[1] // BLOCK
    if whole < 2 * count:
        return tuple(rows.topk(count, dim=-1))  # type: ignore[return-value]
    maxima = rows[:, : whole * BLOCK].unflatten(1, (whole, BLOCK)).amax(dim=-1)
    blocks = maxima.topk(count, dim=-1, sorted=False).indices
    columns = blocks[:, :, None] * BLOCK + torch.arange(BLOCK, device=rows.device)
    after = torch.arange(whole * BLOCK, rows.shape[1], device=rows.device)
    columns = torch.cat([columns.flatten(1), after.expand(len(rows), -1)], dim=1)
    found = rows.gather(1, columns).topk(count, dim=-1)
    return found.values, columns.gather(1, found.indices)


def draws(
    of: Distributions,
    indices: Sequence[int],
    uniforms: Sequence[float],
    hidden: Sequence[tuple[int, int]],
) -> Sequence[Sequence[float]]:
    """For each draw: the token, where in its interval the random number lies, the probability of
    all tokens that could be drawn, and ln p of the token.

    Args:
        of: On the host.
        indices: The row of each draw.
        uniforms: Its random number.
        hidden: Pairs of a draw and a token that it must not take; all pairs of a row belong to one
            draw.
    """
    scores, probs = _array(of.scores), _array(of.probs)
    best, log_total = _array(of.best), _array(of.log_total)
    rows, blocks = np.array(indices), _array(of.blocks)[indices]
    draw, token = np.array(hidden, dtype=np.int64).reshape(-1, 2).T
    if hidden:
        blocks[draw, token // BLOCK] = _sums_without(probs, rows[draw], token)
    blocks = blocks.astype(np.float64)
    totals = _array(torch.from_numpy(blocks).sum(dim=-1))  # NumPy would round it differently
    block, rest = _search(blocks, np.array(uniforms) * totals)
    inside = _block(probs, rows, block).astype(np.float64)
    if hidden:
        same = block[draw] == token // BLOCK
        inside[draw[same], token[same] % BLOCK] = 0.0
    at, rest = _search(inside, rest)
    with np.errstate(invalid="ignore", divide="ignore"):
        place = np.minimum(rest / inside[np.arange(len(at)), at], 1 - 2.0**-53)
        tokens = block * BLOCK + at
        columns = np.minimum(tokens, scores.shape[1] - 1)
        log_probs = scores[rows, columns] - best[rows] - log_total[rows]
    return list(zip(*(part.tolist() for part in (tokens, place, totals, log_probs)), strict=True))


def _sums_without(probs: _Numbers, rows: _Numbers, tokens: _Numbers) -> _Numbers:
    """For each token, the probability of its block without the given tokens of its row."""
    saved = probs[rows, tokens]
    probs[rows, tokens] = 0.0  # in place: a copy would take longer than everything else
    try:
        return _array(torch.from_numpy(_block(probs, rows, tokens // BLOCK)).sum(dim=-1))
    finally:
        probs[rows, tokens] = saved


def _block(probs: _Numbers, rows: _Numbers, block: _Numbers) -> _Numbers:
    """The probabilities of one block of tokens at each of these rows, (N, BLOCK)."""
    at, size = block[:, None] * BLOCK + np.arange(BLOCK), probs.shape[1]
    own: _Numbers = probs[rows[:, None], np.minimum(at, size - 1)]
    own[at >= size] = 0.0
    return own


def _search(probs: _Numbers, target: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Find where the running sum of probabilities, (N, B) float64, passes a target: the index, and
    how far the target exceeds the sum before it, (N,) each.
    """
    cumulative = probs.cumsum(axis=1)
    target = np.minimum(target, np.nextafter(cumulative[:, -1], 0.0))
    passed = (cumulative <= target[:, None]).sum(axis=1)
    index, each = np.minimum(passed, probs.shape[1] - 1), np.arange(len(probs))
    before = cumulative[each, index] - probs[each, index]
    return index, np.maximum(target - before, 0.0)


def _array(tensor: Tensor) -> _Numbers:
    """A view of the same memory."""
    return tensor.numpy()


def log_probs_of(of: Distributions, rows: Tensor, tokens: Tensor) -> Tensor:
    """ln p of one token at each of these rows, (N,) float64."""
    return (of.scores[rows, tokens] - of.best[rows] - of.log_total[rows]).double()


def on_host(*tensors: Tensor) -> list[Tensor]:
    """The same numbers in host memory: from CUDA, all are copied to pinned memory, which needs no
    second copy, with one wait.
    """
    if not tensors[0].is_cuda:
        return [*tensors]
    copies = []
    for tensor in tensors:
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        copies.append(pinned.copy_(tensor, non_blocking=True))
    torch.cuda.current_stream(tensors[0].device).synchronize()
    return copies
