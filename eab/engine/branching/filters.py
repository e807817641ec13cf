"""From the model's logits to processed scores: logits processors, temperature and filters, ordered
and defined as in `generate` of transformers.

Logits processors change the scores of a path, depending on its tokens: first the built-in one
against repetition, then custom ones. Each sees only one path with its prompt, so the weights are
unbiased for the distribution that results.

The top-p of transformers sorts the whole vocabulary, which takes longer than the model itself. On a
CPU, only tokens with more than the V-th part of what is dropped are sorted, as all others are
dropped. The sums of transformers are rounded in sorted order. So where rounding could move the
boundary by a token, the scores of the row are sorted after all. Their indices are sorted with them
only where equal scores lie at the boundary, because only some of these are kept. On CUDA the whole
vocabulary is sorted, which never waits for the device.
"""

import math
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from eab.config import BranchingConfig
from eab.engine.branching.own import Processor, plain_name
from eab.errors import ConfigError


def penalties(config: BranchingConfig) -> tuple[Processor, ...]:
    """The processors that the settings ask for."""
    if config.repetition_penalty == 1.0:
        return ()
    return (partial(_penalize_repetition, penalty=config.repetition_penalty),)


def processed(
    processors: Sequence[Processor], logits: Tensor, texts: Sequence[Sequence[int]]
) -> Tensor:
    """The processed scores after these texts, (P, V). Each row is processed alone, so the result
    for a path does not depend on the others.

    Raises:
        ConfigError: A processor did not return scores of the right shape, or none that is finite.
    """
    exact = logits.dtype == torch.float64
    scores = logits.clone() if exact else logits.to(torch.float32, copy=True)
    for row, tokens in zip(scores.split(1), texts, strict=True):
        ids, made = torch.tensor([tokens], device=logits.device), row
        for processor in processors:
            made = _checked(processor, processor(ids, made), row)
        if made is not row:
            row.copy_(made)
    spoilt = logits.amax(dim=-1).isfinite() & ~scores.amax(dim=-1).isfinite()
    if spoilt.any():
        at = int(spoilt.int().argmax())
        _blame(processors, logits[at : at + 1].to(scores.dtype, copy=True), texts[at])
    return scores


def _blame(processors: Sequence[Processor], row: Tensor, text: Sequence[int]) -> None:
    """Raise ConfigError for the processor that leaves no token of this row, (1, V), to draw."""
    ids = torch.tensor([text], device=row.device)
    for processor in processors:
        row = processor(ids, row).to(row.dtype)
        if not (highest := row.amax()).isfinite():
            scores = {-math.inf: "all scores to -inf", math.inf: "a score to +inf"}
            what = scores.get(float(highest), "a score to NaN")
            raise ConfigError(
                f"the logits processor {plain_name(processor)} sets {what} after "
                f"{len(text):,} tokens, so no token can be drawn; let it leave a finite score"
            )


def _checked(processor: Processor, given: Tensor, scores: Tensor) -> Tensor:
    shape = getattr(given, "shape", None)
    if shape != scores.shape:
        what = type(given).__name__ if shape is None else f"tensor of shape {tuple(shape)}"
        raise ConfigError(
            f"the logits processor {plain_name(processor)} returned a {what}; it must return "
            f"the scores as a tensor of shape {tuple(scores.shape)}"
        )
    return given


def _penalize_repetition(ids: Tensor, scores: Tensor, penalty: float) -> Tensor:
    """Lower the scores of tokens that occur in the text, in place (arXiv 1909.05858)."""
    seen = scores.gather(1, ids)
    return scores.scatter_(1, ids, torch.where(seen < 0, seen * penalty, seen / penalty))


_SPARSE: Final = 4  # at most every 4th token is sorted; else all are
_LANES: Final = 8  # numbers that PyTorch's softmax adds in parallel, at least
_EPS: Final = {np.dtype(one): float(np.finfo(one).eps) for one in (np.float32, np.float64)}
_PER_ROW: Final = 2**15  # tokens; from this size on, PyTorch splits one row among its threads
_NOTHING: Final = torch.empty(0, dtype=torch.int64)

_Numbers = NDArray[Any]


def filtered(scores: Tensor, config: BranchingConfig) -> Tensor:
    """Apply temperature, then the filters, to scores, (P, V); removed tokens get -inf."""
    if config.temperature != 1.0:
        scores = scores / config.temperature
    if config.top_k:
        scores = top_k(scores, config.top_k, config.top_p)
    elif config.top_p < 1.0:
        scores = top_p(scores, config.top_p)
    return min_p(scores, config.min_p) if config.min_p else scores


def top_k(scores: Tensor, count: int, probability: float = 1.0) -> Tensor:
    """Keep the `count` largest scores of each row and those equal to the smallest of them; then
    apply top-p to these.
    """
    if scores.device.type != "cpu":
        from transformers import TopKLogitsWarper

        kept: Tensor = TopKLogitsWarper(count)(_NOTHING, scores)
        return kept if probability == 1.0 else top_p(kept, probability)
    if count >= scores.shape[1]:
        return scores if probability == 1.0 else top_p(scores, probability)
    kept = torch.empty_like(scores)
    bounds = _array(largest(scores, count)[0][:, -1])
    for number, (to, row) in enumerate(zip(_array(kept), _array(scores), strict=True)):
        columns = _keep(to, row, bounds[number])
        if probability < 1.0:
            likely = _array(torch.from_numpy(row[columns]).softmax(dim=-1))
            least = _least_of_likely(likely, 0.0, probability, len(row))
            to[columns[likely < least]] = -np.inf
            if np.isnan(least):
                _top_p_of_sorted(to, to.copy(), probability)
    return kept


def top_p(scores: Tensor, probability: float) -> Tensor:
    """Keep the largest scores of each row that together have this probability."""
    if scores.device.type != "cpu":
        return _sorted_with_places(scores, probability)
    kept, size = scores.softmax(dim=-1), scores.shape[1]
    rows, targets = _array(scores), _array(kept)  # in the same memory: new one would take longer

    def take_likely(probs: _Numbers) -> tuple[_Numbers, _Numbers]:
        """The columns and the probabilities of likely tokens; leaves those of the others."""
        [columns] = (probs > (1.0 - probability) / size).nonzero()
        likely = probs.take(columns)
        probs[columns] = 0.0
        return columns, likely

    def keep(to: _Numbers, row: _Numbers, found: tuple[_Numbers, _Numbers], rest: float) -> None:
        columns, likely = found
        is_few = len(likely) * _SPARSE <= size
        least = _least_of_likely(likely, rest, probability, size) if is_few else np.nan
        if np.isnan(least):
            return _top_p_of_sorted(to, row, probability)
        columns = columns[likely >= least]
        to.fill(-np.inf)
        to[columns] = row.take(columns)

    threads = min(torch.get_num_threads(), len(rows)) if size >= _PER_ROW else 1
    # NumPy has one thread, and PyTorch's would wait for each other in every small step.
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        each = map if pool is None else pool.map
        found = list(each(take_likely, targets))
        rests = kept.sum(dim=-1).tolist()
        list(each(keep, targets, rows, found, rests))
    return kept


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


def _least_of_likely(likely: _Numbers, rest: float, probability: float, size: int) -> float:
    """The smallest probability that top-p keeps. It is NaN where the rounding of `generate` could
    decide, or if equal probabilities or less likely tokens are at the boundary.

    Args:
        likely: The probabilities of some tokens, in any order, (N,).
        rest: The probability of all others, each less likely than these.
        probability: The probability to keep.
        size: The size of the vocabulary.
    """
    if not len(likely):
        return np.nan
    rising = np.sort(likely)
    below = rest + rising.cumsum(dtype=np.float64)  # of a token and all less likely ones
    limit = (1.0 - probability) * below[-1]
    first = int(below.searchsorted(limit, side="right"))
    if first == len(rising) or (first and rising[first - 1] == rising[first]):
        return np.nan
    # Each addition rounds a sum by at most eps / 2 of its value. In ascending order, this value is
    # at most the probability of the unlikely tokens, until the few likely ones are added.
    margin = limit * _EPS[rising.dtype] * ((size * rest + len(rising)) / (2 * _LANES) + 64)
    margin += 2 * size * sys.float_info.epsilon
    before = below[first - 1] if first else rest
    is_clear = before < limit - margin and below[first] > limit + margin
    return float(rising[first]) if is_clear else np.nan


def _top_p_of_sorted(kept: _Numbers, scores: _Numbers, probability: float) -> None:
    """Write what top-p keeps of a row."""
    rising = np.sort(scores)
    # As `generate` does it, with the same rounding.
    probs = torch.from_numpy(rising).softmax(dim=-1)
    first = min(_dropped(probs, rising.dtype.type(1 - probability)), len(rising) - 1)
    if first > 0 and rising[first - 1] == rising[first] > -np.inf:
        row = torch.from_numpy(scores)[None]
        kept[:] = _array(_sorted_with_places(row, probability))[0]
    else:
        _keep(kept, scores, rising[first])


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


def _keep(kept: _Numbers, scores: _Numbers, least: np.floating[Any]) -> _Numbers:
    """Copy the scores of a row that are at least `least`, and NaN, which must not be hidden;
    returns their columns.
    """
    columns = np.flatnonzero(~(scores < least))
    kept.fill(-np.inf)
    kept[columns] = scores[columns]
    return columns


def _array(rows: Tensor) -> _Numbers:
    """A view of the same memory."""
    return rows.detach().numpy()


_GROUP: Final = 64  # tokens, of which the largest is found first


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
