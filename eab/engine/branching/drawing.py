"""Draws from processed distributions, by inverting each in token order.

A draw first finds the block of tokens in which the running sum of probabilities passes its random
number, then the token in it. It does so on the host, in NumPy, because the arrays are small, and
each of the sixty operations of PyTorch would take longer to call than to compute. From another
device, the distributions are copied: a few milliseconds for a hundred paths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

BLOCK: Final = 256  # tokens
_GROUP: Final = 64  # tokens, of which the largest is found first

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
    which is slow over a vocabulary, but only among the groups with the largest maxima.
    """
    whole = rows.shape[1] // _GROUP
    if whole < 2 * count:
        return tuple(rows.topk(count, dim=-1))  # type: ignore[return-value]
    groups = rows[:, : whole * _GROUP].unflatten(1, (whole, _GROUP))
    best = groups.amax(dim=-1).topk(count, dim=-1, sorted=False).indices
    among = groups.gather(1, best[:, :, None].expand(-1, -1, _GROUP)).flatten(1)
    found = torch.cat([among, rows[:, whole * _GROUP :]], dim=1).topk(count, dim=-1)
    best = functional.pad(best, (0, 1), value=whole)  # what is left over comes last
    columns = best.gather(1, found.indices // _GROUP) * _GROUP + found.indices % _GROUP
    return found.values, columns


class Draw(NamedTuple):
    """A token that was drawn."""

    token: int | None  # None if none can be
    inside: float  # where in the interval of the token the random number lies, in [0, 1)
    total_probability: float  # of all tokens that could be drawn


def draws(
    of: Distributions,
    indices: Sequence[int],
    uniforms: Sequence[float],
    hidden: Sequence[tuple[int, int]],
) -> list[Draw]:
    """Draw a token from each of these rows.

    Args:
        of: On the host.
        indices: The row of each draw.
        uniforms: Its random number.
        hidden: Pairs of a draw and a token that it must not take; all pairs of a row belong to one
            draw.
    """
    probs, rows = _array(of.probs), np.array(indices)
    blocks = _array(of.blocks)[rows]
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
    found = zip((block * BLOCK + at).tolist(), place.tolist(), totals.tolist(), strict=True)
    return [Draw(token if total > 0 else None, inside, total) for token, inside, total in found]


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
    size = probs.shape[1]
    starts = rows * size + block * BLOCK
    own: _Numbers = probs.take(starts[:, None] + np.arange(BLOCK), mode="clip")
    own[block == size // BLOCK, size % BLOCK :] = 0.0  # the last block may be shorter
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


def log_probs_of(of: Distributions, rows: _Numbers, tokens: _Numbers) -> list[float]:
    """ln p of one token at each of these rows, (N,); on the host."""
    scores, best, log_total = (_array(each) for each in (of.scores, of.best, of.log_total))
    with np.errstate(invalid="ignore"):
        found: list[float] = (scores[rows, tokens] - best[rows] - log_total[rows]).tolist()
    return found


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
