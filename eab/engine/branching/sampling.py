"""From logits to the processed distribution, its entropy, and draws from it.

A draw inverts a distribution in token order: it first finds the block of tokens in which the
running sum of probabilities passes its random number, then the token in it. It does so on the host,
in NumPy, because the arrays are small, and each of the sixty operations of PyTorch would take
longer to call than to compute. From another device, the distributions are copied: a few
milliseconds for a hundred paths.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from eab.config import WARPERS, BranchingConfig
from eab.engine.branching.filters import filtered, largest

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


CANDIDATES = 8  # how many of the most likely tokens are listed, at least
# What a Predictions holds for each row.
_TENSORS: Final = ("_scores", "_probs", "_blocks", "_best", "_log_total", "_best_logit")
_LISTS: Final = ("entropies", "top_tokens", "top_probabilities", "drawn", "rests")


class RestDraw(Struct, frozen=True, gc=False):
    """One more token to draw at a row, with a few tokens excluded."""

    index: int
    uniform: float
    excluded: Sequence[int]  # tokens that must not be drawn; the rest is renormalised


class Predictions:
    """The processed next-token distributions of a batch: after temperature and filters."""

    entropies: list[float]  # entropy at each batch index, in nats
    top_tokens: list[list[int]]  # the most likely tokens at each batch index, most likely first
    top_probabilities: list[list[float]]  # their probabilities
    # The token drawn at each batch index; None if none can be. See `draw_next`.
    drawn: list[int | None]
    rests: list[int | None]  # the token of each `RestDraw`, likewise; None at an index without one

    def __init__(
        self, logits: Tensor, config: BranchingConfig | Sequence[tuple[BranchingConfig, int]]
    ) -> None:
        """Process logits.

        Args:
            logits: (P, V).
            config: The settings of all rows; or of each run, with the number of its rows.
        """
        runs = [(config, len(logits))] if isinstance(config, BranchingConfig) else config
        scores = logits if logits.dtype == torch.float64 else logits.float()
        self._scores = _by_settings(scores, runs, _filter_settings, _processed)  # (P, V)
        self._probs = torch.softmax(self._scores, dim=-1)
        self._blocks = block_sums(self._probs)
        width = min(max(listed(config) for config, _ in runs), self._probs.shape[1])
        tops = _by_settings(
            self._probs, runs, listed, lambda probs, config: _top(probs, listed(config), width)
        )
        most, best = tops[:, :1].to(scores.dtype), tops[:, width : width + 1].long()
        self._best, self._best_logit = self._scores.gather(1, best)[:, 0], scores.gather(1, best)
        self._log_total = -most.log()[:, 0]  # ln Z, with scores relative to the best one
        numbers = self._to_host(torch.cat([self._entropies()[:, None], tops], dim=1))
        self.entropies = numbers[:, 0].tolist()
        probs, tokens = _lower_first(numbers[:, 1 : 1 + width], numbers[:, 1 + width :])
        self.top_probabilities = probs.tolist()
        self.top_tokens = tokens.astype(np.int64).tolist()
        self.drawn = [None] * len(numbers)
        self.rests = [None] * len(numbers)

    def _to_host(self, numbers: Tensor) -> NDArray[np.float64]:
        """Move everything to the host, with one wait; returns the numbers."""
        held = on_host(numbers, *(getattr(self, name) for name in _TENSORS))
        for name, tensor in zip(_TENSORS, held[1:], strict=True):
            setattr(self, name, tensor)
        return held[0].numpy()

    @classmethod
    def joined(cls, sources: list[tuple["Predictions", int]]) -> "Predictions":
        """One batch from rows of others, which may come from several forward passes."""
        first = sources[0][0]
        if sources == [(first, at) for at in range(len(first.entropies))]:
            return first
        joined = cls.__new__(cls)
        for name in _TENSORS:
            rows = [getattr(source, name)[at] for source, at in sources]
            setattr(joined, name, torch.stack(rows))
        for name in _LISTS:
            setattr(joined, name, [getattr(source, name)[at] for source, at in sources])
        return joined

    def split(self, counts: Sequence[int]) -> list["Predictions"]:
        """The batch in parts with these numbers of rows, which share its memory."""
        if len(counts) == 1:
            return [self]
        parts = []
        for end, count in zip(accumulate(counts), counts, strict=True):
            parts.append(part := type(self).__new__(type(self)))
            for name in (*_TENSORS, *_LISTS):
                setattr(part, name, getattr(self, name)[end - count : end])
        return parts

    def _entropies(self) -> Tensor:
        """H = ln Z - sum p x score, with scores relative to the best one; (P,)."""
        # An impossible token gives 0 x -inf, which must count as 0.
        mean = (self._scores - self._best[:, None]).mul_(self._probs).nansum(dim=-1)
        return (self._log_total - mean).clamp(min=0.0)

    def draw_next(self, uniforms: Sequence[float], rests: Sequence[RestDraw]) -> None:
        """Fill `drawn` and `rests`: draw a token at every batch index, each with a random number,
        and the tokens of `rests`, at most one per index.
        """
        count = len(uniforms)
        indices = [*range(count), *(rest.index for rest in rests)]
        tokens = self.draw(
            indices,
            [*uniforms, *(rest.uniform for rest in rests)],
            [*[()] * count, *(rest.excluded for rest in rests)],
        )
        self.drawn = tokens[:count]
        for rest, token in zip(rests, tokens[count:], strict=True):
            self.rests[rest.index] = token

    def draw(
        self,
        indices: Sequence[int],
        uniforms: Sequence[float],
        excluded: Sequence[Sequence[int]] = (),
    ) -> list[int | None]:
        """Draw a token at each batch index by inverting its distribution, in token order.

        None where no token is left; a token of probability zero is never drawn. `excluded` lists
        tokens that each draw must skip, for one draw per index at most; the rest is renormalised.
        """
        return [draw.token for draw in self.draw_inside(indices, uniforms, excluded)]

    def draw_inside(
        self,
        indices: Sequence[int],
        uniforms: Sequence[float],
        excluded: Sequence[Sequence[int]] = (),
    ) -> list[Draw]:
        """Draw like `draw`, and return where in its token's interval each random number lies."""
        if not indices:
            return []
        hidden = [(draw, token) for draw, some in enumerate(excluded) for token in some]
        return draws(self._of, indices, uniforms, hidden)

    @property
    def probabilities(self) -> Tensor:
        """Of all tokens, (P, V), on the host."""
        return self._probs

    @property
    def _of(self) -> Distributions:
        return Distributions(
            *(self._scores, self._probs, self._blocks, self._best, self._log_total)
        )

    def log_prob(self, indices: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """ln p of one token at each of these batch indices; an index may occur several times."""
        return log_probs_of(self._of, np.array(indices, np.int64), np.array(tokens, np.int64))

    def best_logits(self, count: int, temperature: float) -> Tensor:
        """The logits of the most likely tokens, (P, count), or minus infinity for tokens that the
        filters remove.
        """
        best = largest(self._scores, min(count, self._scores.shape[1]))[0]
        return (best - best[:, :1]) * temperature + self._best_logit

    def best_continuations(self, log_probs: Sequence[float], count: int) -> list[tuple[int, int]]:
        """The most probable continuations by one token of texts with these ln p, one for each batch
        index: at most `count` pairs of batch index and token, most probable first.
        """
        ends = torch.tensor(log_probs, dtype=self._scores.dtype) - self._best - self._log_total
        texts = (self._scores + ends[:, None]).view(1, -1)
        values, places = largest(texts, min(count, texts.shape[1]))
        possible = places[values > -torch.inf].tolist()
        return [divmod(place, self._scores.shape[1]) for place in possible]


def _lower_first(probs: _Numbers, tokens: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Put the lower of equally likely tokens first, like argmax; topk may choose any order. The
    arguments list them most likely first, (P, width).
    """
    if not ((probs[:, 1:] == probs[:, :-1]) & (probs[:, 1:] > 0)).any():
        return probs, tokens
    order = np.lexsort((tokens, -probs), axis=1)
    return np.take_along_axis(probs, order, axis=1), np.take_along_axis(tokens, order, axis=1)


def _by_settings(
    rows: Tensor,
    runs: Sequence[tuple[BranchingConfig, int]],
    key: Callable[[BranchingConfig], Hashable],
    process: Callable[[Tensor, BranchingConfig], Tensor],
) -> Tensor:
    """Process the rows of runs; neighbours whose settings have the same key go together."""
    if len(runs) == 1:
        return process(rows, runs[0][0])
    done, first = [], 0
    for _, neighbours in groupby(runs, key=lambda run: key(run[0])):
        together = list(neighbours)
        count = sum(number for _, number in together)
        done.append(process(rows[first : first + count], together[0][0]))
        first += count
    return done[0] if len(done) == 1 else torch.cat(done)


def _processed(rows: Tensor, config: BranchingConfig) -> Tensor:
    """Temperature and filters; a low temperature rounds differences less than the logits."""
    if config.temperature != 1.0:
        rows = rows - rows.amax(dim=-1, keepdim=True)
    return filtered(rows, config)


def _filter_settings(config: BranchingConfig) -> Hashable:
    return tuple(getattr(config, name) for name in WARPERS)


def listed(config: BranchingConfig) -> int:
    """How many of the most likely tokens are listed."""
    return max(CANDIDATES, config.branch_factor)


def _top(probs: Tensor, count: int, width: int) -> Tensor:
    """The most likely tokens of each row, (P, 2 * width) in float64: probabilities, then tokens.
    Beyond `count`, they are padded with probability zero.
    """
    probabilities, tokens = largest(probs, min(count, width))
    parts = [probabilities.double(), tokens.double()]
    if missing := width - probabilities.shape[1]:
        parts = [functional.pad(part, (0, missing)) for part in parts]
    return torch.cat(parts, dim=1)
