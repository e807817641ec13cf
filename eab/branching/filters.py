"""Temperature and the filters of the next-token distribution, ordered and defined as in `generate`
of transformers. Only top-n-sigma comes from elsewhere: llama.cpp, where it is the first filter.

The top-p of transformers sorts the whole vocabulary, which takes longer than the model itself. On a
CPU, the same tokens are found among the few largest scores: only the blocks of tokens with the
largest maxima are searched, and more blocks where these have too little probability. The sums of
transformers are rounded in sorted order. So where rounding could move the boundary by a token, the
scores of the row are sorted after all. Their indices are sorted with them only where equal scores
lie at the boundary, because only some of these are kept. On CUDA the whole vocabulary is sorted,
which never waits for the device.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.config import BranchingConfig

_BLOCK: Final = 32  # tokens
_COUNTS: Final = (64, 512)  # blocks to search: few at first, then more
_WORTH: Final = 4  # searching the best blocks pays off if there are this many times as many blocks
_LANES: Final = 8  # numbers that PyTorch's softmax adds in parallel, at least
_PER_ROW: Final = 2**15  # tokens; from this size on, PyTorch splits one row among its threads
_NOTHING: Final = torch.empty(0, dtype=torch.int64)

_Numbers = NDArray[Any]


def filtered(scores: Tensor, config: BranchingConfig) -> Tensor:
    """Apply temperature, then the filters, to scores, (P, V); removed tokens get -inf."""
    if config.temperature != 1.0:
        scores = scores / config.temperature
    if config.top_n_sigma:
        scores = top_n_sigma(scores, config.top_n_sigma)
    if config.top_k:
        scores = top_k(scores, config.top_k, config.top_p)
    elif config.top_p < 1.0:
        scores = top_p(scores, config.top_p)
    if config.min_p:
        scores = min_p(scores, config.min_p)
    return typical_p(scores, config.typical_p) if config.typical_p < 1.0 else scores


def top_n_sigma(scores: Tensor, count: float) -> Tensor:
    """Keep scores at most `count` standard deviations below the largest one of their row (arXiv
    2411.07641); the standard deviation ignores impossible tokens.
    """
    if scores.device.type != "cpu":
        possible = scores > -torch.inf
        finite, number = scores.where(possible, 0.0), possible.sum(dim=-1, keepdim=True)
        away = (finite - finite.sum(dim=-1, keepdim=True) / number).where(possible, 0.0)
        sigma = (away.square().sum(dim=-1, keepdim=True) / number).sqrt()
        least = scores.amax(dim=-1, keepdim=True) - count * sigma
        return scores.masked_fill(scores < least, -torch.inf)
    kept = torch.empty_like(scores)
    for to, own in zip(_array(kept), _array(scores), strict=True):
        possible = own if own.min() > -np.inf else own[own > -np.inf]
        with np.errstate(invalid="ignore"):
            sigma = possible.std() if len(possible) else possible.dtype.type(0)
            _keep(to, own, own.max() - own.dtype.type(count) * sigma)
    return kept


def top_k(scores: Tensor, count: int, probability: float = 1.0) -> Tensor:
    """Keep the `count` largest scores of each row and those equal to the smallest of them; then
    apply top-p to these.
    """
    if scores.device.type != "cpu" or scores.shape[1] < _WORTH * count * _BLOCK:
        kept = _top_k_of_all(scores, count)
        return kept if probability == 1.0 else top_p(kept, probability)
    rows = np.arange(len(scores))
    best = _Best.of(
        _array(scores), rows, *_best_blocks(_in_blocks(_array(scores)).max(axis=1), count)
    )
    least = np.partition(best.scores, -count, axis=1)[:, -count]
    determined = least > best.bound
    if probability < 1.0:
        impossible = best.scores < least[:, None]
        best = replace(
            best,
            scores=np.where(impossible, -np.inf, best.scores),
            bound=np.full_like(best.bound, -np.inf),
        )
        probs = torch.from_numpy(best.scores).softmax(dim=-1)
        totals = _array(probs.sum(dim=-1, dtype=torch.float64))
        least = _least_of_best(best, _array(probs), totals, probability, scores.shape[1])
        determined &= ~np.isnan(least)
    kept = torch.empty_like(scores)
    best.keep(_array(kept), determined, least)
    for row in rows[~determined]:
        own = _top_k_of_all(scores[row : row + 1], count)
        kept[row] = (own if probability == 1.0 else top_p(own, probability))[0]
    return kept


def _top_k_of_all(scores: Tensor, count: int) -> Tensor:
    if scores.device.type != "cpu":
        from transformers import TopKLogitsWarper

        return TopKLogitsWarper(count)(_NOTHING, scores)  # type: ignore[no-any-return]
    if count >= scores.shape[1]:
        return scores
    kept = torch.empty_like(scores)
    for to, row in zip(_array(kept), _array(scores), strict=True):
        _keep(to, row, np.partition(row, -count)[-count])
    return kept


def top_p(scores: Tensor, probability: float) -> Tensor:
    """Keep the largest scores of each row that together have this probability."""
    if scores.device.type != "cpu":
        return _sorted_with_places(scores, probability)
    kept, size = torch.empty_like(scores), scores.shape[1]

    def filter_rows(first: int, end: int) -> list[int]:
        rows = _top_p_of_rows(_array(scores[first:end]), _array(kept[first:end]), probability)
        return [first + row for row in rows]

    together = len(scores) if size < _PER_ROW else 1
    starts = range(0, len(scores), together)
    ends = range(together, len(scores) + 1, together)
    threads = min(torch.get_num_threads(), len(starts))
    if threads < 2:
        each = list(map(filter_rows, starts, ends))
    else:
        # NumPy has one thread, and PyTorch's would wait for each other in every small step.
        with ThreadPoolExecutor(threads) as pool:
            each = list(pool.map(filter_rows, starts, ends))
    equal = list(chain.from_iterable(each))
    for row in equal:
        kept[row] = _sorted_with_places(scores[row : row + 1], probability)[0]
    return kept


def _top_p_of_rows(scores: _Numbers, kept: _Numbers, probability: float) -> list[int]:
    """Write what top-p keeps, except in rows where equal scores are dropped; returns these."""
    left = np.arange(len(scores))
    if scores.shape[1] >= _WORTH * _COUNTS[0] * _BLOCK:
        left = _top_p_of_blocks(scores, kept, probability)
    if not len(left):
        return []
    least = _least_of_sorted(scores[left], probability)
    for row, bound in zip(left, least, strict=True):
        if bound is not None:
            _keep(kept[row], scores[row], bound)
    return [int(row) for row, bound in zip(left, least, strict=True) if bound is None]


def min_p(scores: Tensor, share: float) -> Tensor:
    """Keep tokens with at least this share of the probability of the most likely token."""
    if scores.device.type != "cpu":
        from transformers import MinPLogitsWarper

        return MinPLogitsWarper(share)(_NOTHING, scores)  # type: ignore[arg-type]
    kept = torch.softmax(scores, dim=-1)
    for own, row in zip(_array(kept), _array(scores), strict=True):
        columns = np.flatnonzero(~(own < own.dtype.type(share) * own.max()))
        own.fill(-np.inf)  # new memory would take longer than the rest
        own[columns] = row[columns]
    return kept


def typical_p(scores: Tensor, probability: float) -> Tensor:
    """Keep the tokens whose surprisal, -ln p, is nearest to the entropy, until they have this
    probability together. The whole vocabulary is sorted.
    """
    from transformers import TypicalLogitsWarper

    return TypicalLogitsWarper(probability)(_NOTHING, scores)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Best:
    """For some rows, the tokens in the blocks with the largest maxima."""

    rows: _Numbers  # (R,)
    columns: _Numbers  # (R, N): of these tokens, in any order
    scores: _Numbers  # (R, N)
    bound: _Numbers  # (R,): no other token has a larger score

    @classmethod
    def of(cls, scores: _Numbers, rows: _Numbers, blocks: _Numbers, bound: _Numbers) -> "_Best":
        """The tokens of these blocks, and those after the last whole block of the vocabulary."""
        size, whole = scores.shape[1], scores.shape[1] // _BLOCK
        inside = blocks[:, :, None] + whole * np.arange(_BLOCK)
        inside = inside.reshape(len(rows), blocks.shape[1] * _BLOCK)
        after = np.arange(whole * _BLOCK, size)
        columns = np.hstack([inside, np.broadcast_to(after, (len(rows), len(after)))])
        return cls(rows, columns, scores[rows[:, None], columns], bound)

    def keep(self, kept: _Numbers, determined: _Numbers, least: _Numbers) -> None:
        """Copy the scores that are at least `least`, in the rows where that was found."""
        kept[self.rows[determined]] = -np.inf
        row, place = np.nonzero((self.scores >= least[:, None]) & determined[:, None])
        kept[self.rows[row], self.columns[row, place]] = self.scores[row, place]


def _top_p_of_blocks(scores: _Numbers, kept: _Numbers, probability: float) -> _Numbers:
    """Write what top-p keeps where the best blocks determine it; returns the other rows."""
    maxima, left = _in_blocks(scores).max(axis=1), np.arange(len(scores))
    probs = _array(torch.from_numpy(scores).softmax(dim=-1))
    sums = _in_blocks(probs).sum(axis=1)
    totals = probs.sum(axis=1, dtype=np.float64)
    for count in _COUNTS:
        if not len(left) or scores.shape[1] < _WORTH * count * _BLOCK:
            break
        blocks, bound = _best_blocks(maxima[left], count)
        # The other blocks have the rest; if that is too much, the boundary is among them.
        inside = totals[left] - sums[left].sum(axis=1)
        worth = inside + np.take_along_axis(sums[left], blocks, axis=1).sum(axis=1) > probability
        if not worth.any():
            continue
        best = _Best.of(scores, left[worth], blocks[worth], bound[worth])
        masses = probs[best.rows[:, None], best.columns]
        least = _least_of_best(best, masses, totals[best.rows], probability, scores.shape[1])
        best.keep(kept, determined := ~np.isnan(least), least)
        left = np.setdiff1d(left, best.rows[determined])
    return left


def _least_of_best(
    best: _Best, probs: _Numbers, totals: _Numbers, probability: float, size: int
) -> _Numbers:
    """The smallest score that top-p keeps in each row, (R,). It is NaN where the rounding of
    `generate` could decide, or if equal scores or other tokens are at the boundary.

    Args:
        best: The tokens to search.
        probs: Their probabilities, (R, N).
        totals: The sum of all probabilities of each row, (R,); because of rounding, not exactly 1.
        probability: The probability to keep.
        size: The size of the vocabulary.
    """
    # Larger scores have larger probabilities, so the two still match if sorted separately.
    scores = np.sort(best.scores, axis=1)[:, ::-1]
    falling = np.sort(probs, axis=1)[:, ::-1].astype(np.float64)
    above = np.cumsum(falling, axis=1) / totals[:, None]
    # The probability of a token and all less likely ones; if it is too small, the token is dropped.
    below = np.hstack([np.ones((len(scores), 1)), 1.0 - above])
    certain = (scores > best.bound[:, None]).sum(axis=1)
    each, limit = np.arange(len(scores)), 1.0 - probability
    count = np.minimum((below[:, :-1] > limit).sum(axis=1), certain)
    eps = np.finfo(probs.dtype).eps
    # Each addition rounds a sum by at most eps / 2 of its value. In ascending order, this value is
    # at most the probability of the unlikely tokens, until the few likely ones are added.
    unlikely, likely = size * below[each, certain], scores.shape[1]
    margin = limit * eps * ((unlikely + likely) / (2 * _LANES) + 32)
    margin += 8 * eps + 2 * size * np.finfo(np.float64).eps
    clear = (below[each, count] < limit - margin) & (below[each, count - 1] > limit + margin)
    least = scores[each, count - 1]
    following = scores[each, np.minimum(count, likely - 1)]
    return np.where(clear & (count > 0) & ((count == likely) | (following < least)), least, np.nan)


def _least_of_sorted(scores: _Numbers, probability: float) -> list[np.floating[Any] | None]:
    """The smallest score that top-p keeps in each row; None where it drops equal scores."""
    rising = np.sort(scores, axis=1)
    # As `generate` does it, with the same rounding.
    probs = torch.from_numpy(rising).softmax(dim=-1)
    limit = rising.dtype.type(1 - probability)
    least: list[np.floating[Any] | None] = []
    for row, own in zip(rising, probs, strict=True):
        first = min(_dropped(own, limit), len(row) - 1)
        equal = first > 0 and row[first - 1] == row[first] > -np.inf
        least.append(None if equal else row[first])
    return least


def _dropped(probs: Tensor, limit: np.floating[Any]) -> int:
    """How many probabilities, in ascending order, add up to no more than the limit."""
    for size in (len(probs) // 8, len(probs)):  # the boundary is mostly early
        sums = _array(probs[:size].cumsum(dim=-1))
        if (count := int(np.searchsorted(sums, limit, side="right"))) < size:
            break
    return count


def _sorted_with_places(scores: Tensor, probability: float) -> Tensor:
    from transformers import TopPLogitsWarper

    return TopPLogitsWarper(probability)(_NOTHING, scores)  # type: ignore[no-any-return]


def _keep(kept: _Numbers, scores: _Numbers, least: np.floating[Any]) -> None:
    """Copy the scores of a row that are at least `least`, and NaN, which must not be hidden."""
    kept[:] = scores
    kept[np.flatnonzero(scores < least)] = -np.inf


def _best_blocks(maxima: _Numbers, count: int) -> tuple[_Numbers, _Numbers]:
    """The blocks with the largest maxima, (R, count), and the largest maximum of the others."""
    blocks = np.argpartition(maxima, -count - 1, axis=1)[:, -count - 1 :]
    return blocks[:, 1:], np.take_along_axis(maxima, blocks[:, :1], axis=1)[:, 0]


def _in_blocks(rows: _Numbers) -> _Numbers:
    """The whole blocks of each row, (P, _BLOCK, blocks). The tokens of a block are far apart, so
    that NumPy reads whole lines of memory.
    """
    whole = rows.shape[1] // _BLOCK
    return rows[:, : whole * _BLOCK].reshape(len(rows), _BLOCK, whole)


def _array(rows: Tensor) -> _Numbers:
    """A view of the same memory."""
    return rows.detach().numpy()
