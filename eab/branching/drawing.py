"""Draws from processed distributions, by inverting each in token order.

A draw first finds the block of tokens in which the running sum of probabilities passes its random
number, then the token in it. CPUs use NumPy, because the arrays are small, and each of the sixty
operations of PyTorch would take longer to call than to compute. Other devices use PyTorch, with no
wait before the result. Both give the same bits (`tests/branching/test_drawing.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

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
        indices: The row of each draw.
        uniforms: Its random number.
        hidden: Pairs of a draw and a token that it must not take; all pairs of a row belong to one
            draw.
    """
    method = draws_on_host if of.probs.device.type == "cpu" else draws_on_device
    return method(of, indices, uniforms, hidden)


def draws_on_host(
    of: Distributions,
    indices: Sequence[int],
    uniforms: Sequence[float],
    hidden: Sequence[tuple[int, int]],
) -> Sequence[Sequence[float]]:
    """See `draws`."""
    scores, probs = _array(of.scores), _array(of.probs)
    best, log_total = _array(of.best), _array(of.log_total)
    rows, blocks = np.array(indices), _array(of.blocks)[indices]
    draw, token = np.array(hidden, dtype=np.int64).reshape(-1, 2).T
    if hidden:
        blocks[draw, token // BLOCK] = _sums_without(probs, rows[draw], token)
    blocks = blocks.astype(np.float64)
    totals = _array(torch.from_numpy(blocks).sum(dim=-1))  # NumPy would round it differently
    block, rest = _search_on_host(blocks, np.array(uniforms) * totals)
    inside = _block_on_host(probs, rows, block).astype(np.float64)
    if hidden:
        same = block[draw] == token // BLOCK
        inside[draw[same], token[same] % BLOCK] = 0.0
    at, rest = _search_on_host(inside, rest)
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
        return _array(torch.from_numpy(_block_on_host(probs, rows, tokens // BLOCK)).sum(dim=-1))
    finally:
        probs[rows, tokens] = saved


def _block_on_host(probs: _Numbers, rows: _Numbers, block: _Numbers) -> _Numbers:
    """The probabilities of one block of tokens at each of these rows, (N, BLOCK)."""
    at, size = block[:, None] * BLOCK + np.arange(BLOCK), probs.shape[1]
    own: _Numbers = probs[rows[:, None], np.minimum(at, size - 1)]
    own[at >= size] = 0.0
    return own


def _search_on_host(probs: _Numbers, target: _Numbers) -> tuple[_Numbers, _Numbers]:
    """See `_search`."""
    cumulative = probs.cumsum(axis=1)
    target = np.minimum(target, np.nextafter(cumulative[:, -1], 0.0))
    passed = (cumulative <= target[:, None]).sum(axis=1)
    index, each = np.minimum(passed, probs.shape[1] - 1), np.arange(len(probs))
    before = cumulative[each, index] - probs[each, index]
    return index, np.maximum(target - before, 0.0)


def _array(tensor: Tensor) -> _Numbers:
    """A view of the same memory."""
    return tensor.numpy()


def draws_on_device(
    of: Distributions,
    indices: Sequence[int],
    uniforms: Sequence[float],
    hidden: Sequence[tuple[int, int]],
) -> Sequence[Sequence[float]]:
    """See `draws`."""
    count = len(indices)
    numbers = [*indices, *uniforms, *(number for pair in hidden for number in pair)]
    # One transfer each way; float64 holds all of them exactly.
    given = torch.tensor(numbers, dtype=torch.float64, device=of.probs.device)
    rows, uniform = given[:count].long(), given[count : 2 * count]
    blocks, pairs = of.blocks[rows], None
    if hidden:
        pairs = given[2 * count :].long().view(-1, 2).T
        blocks[pairs[0], pairs[1] // BLOCK] = _sums_on_device(of.probs, rows[pairs[0]], pairs[1])
    totals = blocks.double().sum(dim=-1)
    tokens, inside = _invert(of.probs, rows, blocks, uniform * totals, pairs)
    log_probs = log_probs_of(of, rows, tokens.clamp(max=of.scores.shape[1] - 1))
    drawn = on_host(torch.stack([tokens.double(), inside, totals, log_probs], dim=1))
    return drawn.tolist()


def log_probs_of(of: Distributions, rows: Tensor, tokens: Tensor) -> Tensor:
    """ln p of one token at each of these rows, (N,) float64."""
    return (of.scores[rows, tokens] - of.best[rows] - of.log_total[rows]).double()


def _sums_on_device(probs: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """See `_sums_without`."""
    saved = probs[rows, tokens]
    probs[rows, tokens] = torch.zeros_like(saved)
    try:
        return _block(probs, rows, tokens // BLOCK).sum(dim=-1)
    finally:
        probs[rows, tokens] = saved


def _block(probs: Tensor, rows: Tensor, block: Tensor) -> Tensor:
    """See `_block_on_host`."""
    at, size = block[:, None] * BLOCK + torch.arange(BLOCK, device=block.device), probs.shape[1]
    return probs[rows[:, None], at.clamp(max=size - 1)] * (at < size)


def _invert(
    probs: Tensor, rows: Tensor, blocks: Tensor, target: Tensor, hidden: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Find the block in which the running sum passes the target, then the token in it.

    Args:
        rows: The row of each draw; like the target and both results, (N,).
        blocks: The probability of each block, (N, B).
        hidden: Pairs of a draw and a token that it must not take, (2, pairs).

    Returns:
        The tokens, and where in the interval of the token the target lies, in [0, 1).
    """
    block, rest = _search(blocks, target)
    inside = _block(probs, rows, block)
    if hidden is not None:
        draw, tokens = hidden
        # Tokens of other blocks go into an extra column: to leave them out, the host would have to
        # wait for the device.
        column = torch.where(block[draw] == tokens // BLOCK, tokens % BLOCK, BLOCK)
        inside = functional.pad(inside, (0, 1))
        inside[draw, column] = torch.zeros_like(inside[draw, column])
        inside = inside[:, :BLOCK]
    token, rest = _search(inside, rest)
    own = inside.gather(1, token[:, None])[:, 0].double()
    # Rounding must not lead into the next interval.
    return block * BLOCK + token, (rest / own).clamp(max=1 - 2.0**-53)


def _search(probs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Find where the running sum of probabilities passes a target: the index, (P,), and how far the
    target exceeds the sum before this index, (P,).
    """
    # In float32, rounding of the running sums would sometimes move a draw across a boundary.
    probs = probs.double()
    cumulative = probs.cumsum(dim=-1)
    if probs.is_cuda:  # rounding may lower its parallel sum where the probability is zero
        cumulative = cumulative.masked_fill(probs <= 0, 0.0).cummax(dim=-1).values
    total = cumulative[:, -1:]
    # Rounding must not lead beyond the last token.
    below = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(target[:, None], below)
    index = torch.searchsorted(cumulative, target, right=True).clamp(max=probs.shape[1] - 1)
    before = cumulative.gather(1, index) - probs.gather(1, index)
    return index[:, 0], (target - before).clamp(min=0.0)[:, 0]


def on_host(numbers: Tensor) -> Tensor:
    """The same numbers in host memory. From CUDA they are copied to pinned memory, because any
    other would need two copies.
    """
    if not numbers.is_cuda:
        return numbers
    pinned = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
    pinned.copy_(numbers, non_blocking=True)
    torch.cuda.current_stream(numbers.device).synchronize()
    return pinned
