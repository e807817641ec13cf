"""From logits to the processed distribution, its entropy, and draws from it."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from eab.branching.filters import filtered
from eab.config import OF_DISTRIBUTION, BranchingConfig

CANDIDATES = 8  # how many of the most likely tokens are listed, at least
BLOCK = 256  # tokens
# What a Predictions holds for each row.
_TENSORS: Final = ("_scores", "_probs", "_blocks", "_log_total")
_LISTS: Final = ("entropies", "top_tokens", "top_probabilities", "_known", "drawn", "rests")


@dataclass(frozen=True, slots=True)
class RestDraw:
    """One more token to draw at a row, from what a few tokens leave."""

    index: int
    uniform: float
    excluded: Sequence[int]  # tokens that must not be drawn; the rest is renormalised


@dataclass(frozen=True, slots=True)
class Draw:
    """A token that was drawn."""

    token: int | None
    inside: float  # where in the interval of the token the random number lies, in [0, 1)
    total_probability: float  # of all tokens that could be drawn


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
        self._scores = _by_settings(scores, runs, _filter_settings, filtered)  # (P, V)
        self._probs = torch.softmax(self._scores, dim=-1)
        self._blocks = _block_sums(self._probs)
        width = min(max(listed(config) for config, _ in runs), self._probs.shape[-1])
        tops = _by_settings(
            self._probs, runs, listed, lambda probs, config: _top(probs, listed(config), width)
        )
        tokens = tops[:, width:].long()
        best = self._scores.gather(1, tokens)
        self._log_total = best[:, 0] - tops[:, 0].to(best.dtype).log()  # ln Z
        log_probs = (best - self._log_total[:, None]).double()
        entropies = self._entropies(best[:, 0])
        # In one transfer; float64 holds all of them exactly.
        numbers = _on_host(torch.cat([entropies, log_probs, tops], dim=1))
        self.entropies = numbers[:, 0].tolist()
        lists = _lower_first(numbers[:, 1:].view(len(numbers), 3, width))
        self.top_probabilities = lists[:, 1].tolist()
        self.top_tokens = lists[:, 2].long().tolist()
        rows = zip(self.top_tokens, lists[:, 0].tolist(), strict=True)
        self._known = [dict(zip(*row, strict=True)) for row in rows]  # ln p of the top tokens
        self.drawn = [None] * len(scores)
        self.rests = [None] * len(scores)

    @classmethod
    def joined(cls, sources: Sequence[tuple["Predictions", int]]) -> "Predictions":
        """One batch from batch indices of others, which may come from several forward passes."""
        first, whole = sources[0][0], list(range(len(sources[0][0].entropies)))
        if all(source is first for source, _ in sources) and [at for _, at in sources] == whole:
            return first
        joined = cls.__new__(cls)
        for name in _TENSORS:
            rows = [getattr(source, name)[at] for source, at in sources]
            setattr(joined, name, torch.stack(rows))
        for name in _LISTS:
            setattr(joined, name, [getattr(source, name)[at] for source, at in sources])
        return joined

    def split(self, counts: Sequence[int]) -> list["Predictions"]:
        """The batch in parts of so many rows; they share its memory."""
        if len(counts) == 1:
            return [self]
        parts = []
        for end, count in zip(accumulate(counts), counts, strict=True):
            parts.append(part := type(self).__new__(type(self)))
            for name in (*_TENSORS, *_LISTS):
                setattr(part, name, getattr(self, name)[end - count : end])
        return parts

    def _entropies(self, best: Tensor) -> Tensor:
        """H = ln Z - sum p x score, (P, 1) float64, with scores relative to the best one, (P,)."""
        # An impossible token gives 0 x -inf, which must count as 0.
        mean = (self._probs * self._scores).nansum(dim=-1)
        relative = self._log_total - best + (best * self._blocks.sum(dim=-1) - mean)
        return relative.clamp(min=0.0)[:, None].double()

    def draw_next(self, uniforms: Sequence[float], rests: Sequence[RestDraw]) -> None:
        """Draw a token at every batch index, with a random number each, and the tokens of `rests`,
        at most one per index: fill `drawn` and `rests`.
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

        None where no token is left; a token of probability zero is never drawn. `excluded` are, for
        each index, tokens that must not be drawn, at most once per index; the rest is renormalised.
        """
        return [draw.token for draw in self.draw_inside(indices, uniforms, excluded)]

    def draw_inside(
        self,
        indices: Sequence[int],
        uniforms: Sequence[float],
        excluded: Sequence[Sequence[int]] = (),
    ) -> list[Draw]:
        """Draw as `draw` does, and say where in its token's interval each random number lies."""
        if not indices:
            return []
        count = len(indices)
        pairs = [(draw, token) for draw, some in enumerate(excluded) for token in some]
        numbers = [*indices, *uniforms, *(number for pair in pairs for number in pair)]
        # In one transfer each way; float64 holds all of them exactly.
        given = torch.tensor(numbers, dtype=torch.float64, device=self._probs.device)
        rows, uniform = given[:count].long(), given[count : 2 * count]
        blocks, hidden = self._blocks[rows], None
        if pairs:
            hidden = given[2 * count :].long().view(-1, 2).T
            blocks[hidden[0], hidden[1] // BLOCK] = self._sums_without(rows[hidden[0]], hidden[1])
        totals = blocks.double().sum(dim=-1)
        tokens, inside = self._invert(rows, blocks, uniform * totals, hidden)
        log_probs = self._log_probs_of(rows, tokens.clamp(max=self._scores.shape[1] - 1))
        drawn = _on_host(torch.stack([tokens.double(), inside, totals, log_probs], dim=1)).tolist()
        draws = []
        for index, (number, place, total, log_prob) in zip(indices, drawn, strict=True):
            token = int(number) if total > 0 else None
            draws.append(Draw(token, place, total))
            if token is not None:
                self._known[index].setdefault(token, log_prob)
        return draws

    def _log_probs_of(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """ln p of one token at each of these rows, (N,) float64."""
        return (self._scores[rows, tokens] - self._log_total[rows]).double()

    def _sums_without(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """The probability of each token's block, without these tokens of the row, (N,)."""
        saved = self._probs[rows, tokens]
        # In place: copying all probabilities would take longer than everything else.
        self._probs[rows, tokens] = torch.zeros_like(saved)
        try:
            return self._block(rows, tokens // BLOCK).sum(dim=-1)
        finally:
            self._probs[rows, tokens] = saved

    def _block(self, rows: Tensor, block: Tensor) -> Tensor:
        """The probabilities of one block of tokens at each of these rows, (N, BLOCK)."""
        at = block[:, None] * BLOCK + torch.arange(BLOCK, device=block.device)
        size = self._probs.shape[1]
        return self._probs[rows[:, None], at.clamp(max=size - 1)] * (at < size)

    def _invert(
        self, rows: Tensor, blocks: Tensor, target: Tensor, hidden: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Find the block in which the running sum passes the target, then the token in it.

        Args:
            rows: Batch index of each draw, (N,), as the target and both results.
            blocks: The probability of each block, (N, blocks).
            hidden: Pairs of a draw and a token that it must not take, (2, pairs).

        Returns:
            The tokens, and where in the interval of the token the target lies, in [0, 1).
        """
        block, rest = _search(blocks, target)
        inside = self._block(rows, block)
        if hidden is not None:
            draws, tokens = hidden
            # Tokens of other blocks go into one more column: to leave them out, the host would have
            # to wait for the device.
            column = torch.where(block[draws] == tokens // BLOCK, tokens % BLOCK, BLOCK)
            inside = functional.pad(inside, (0, 1))
            inside[draws, column] = torch.zeros_like(inside[draws, column])
            inside = inside[:, :BLOCK]
        token, rest = _search(inside, rest)
        own = inside.gather(1, token[:, None])[:, 0].double()
        # Rounding must not reach the next interval.
        return block * BLOCK + token, (rest / own).clamp(max=1 - 2.0**-53)

    def log_prob(self, indices: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """ln p of one token at each of these batch indices; an index may occur several times."""
        pairs = list(zip(indices, tokens, strict=True))
        self._look_up(pairs)
        return [self._known[index][token] for index, token in pairs]

    def best_scores(self, count: int) -> Tensor:
        """The scores of the most likely tokens, (P, count): logits over the temperature; minus
        infinity for what the filters leave out.
        """
        return self._scores.topk(min(count, self._scores.shape[1])).values

    def _look_up(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Know ln p of these pairs of batch index and token."""
        new = [(index, token) for index, token in pairs if token not in self._known[index]]
        if new:
            rows, columns = torch.tensor(new, device=self._scores.device).T
            values = self._log_probs_of(rows, columns).tolist()
            for (index, token), log_prob in zip(new, values, strict=True):
                self._known[index][token] = log_prob


def _on_host(numbers: Tensor) -> Tensor:
    """The same numbers in host memory; from CUDA by pinned memory, as other memory needs two
    copies.
    """
    if not numbers.is_cuda:
        return numbers
    pinned = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
    pinned.copy_(numbers, non_blocking=True)
    torch.cuda.current_stream(numbers.device).synchronize()
    return pinned


def _lower_first(listed: Tensor) -> Tensor:
    """Of equally likely tokens the lower one first, as with argmax; topk may choose any order.
    `listed` holds ln p, p, and the token, each the most likely first, (P, 3, width).
    """
    _, probs, tokens = listed.unbind(1)
    if not ((probs[:, 1:] == probs[:, :-1]) & (probs[:, 1:] > 0)).any():
        return listed
    order = tokens.argsort(dim=1)
    order = order.gather(1, probs.gather(1, order).argsort(dim=1, descending=True, stable=True))
    return listed.gather(2, order[:, None].expand_as(listed))


def _block_sums(probs: Tensor) -> Tensor:
    """Probability of each block of tokens, (P, blocks): a draw first finds its block."""
    whole = probs.shape[1] // BLOCK * BLOCK
    blocks = probs[:, :whole].view(len(probs), -1, BLOCK).sum(dim=-1)
    return torch.cat([blocks, probs[:, whole:].sum(dim=-1, keepdim=True)], dim=1)


def _search(probs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Find where the running sum of probabilities passes a target: the index, (P,), and how far the
    target exceeds the sum before this index, (P,).
    """
    # In float32, rounding of the running sums would sometimes move a draw across a boundary.
    probs = probs.double()
    cumulative = probs.cumsum(dim=-1)
    if probs.is_cuda:  # its parallel sum may fall by a rounding where the probability is zero
        cumulative = cumulative.masked_fill(probs <= 0, 0.0).cummax(dim=-1).values
    total = cumulative[:, -1:]
    # Rounding must not reach beyond the last token.
    below = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(target[:, None], below)
    index = torch.searchsorted(cumulative, target, right=True).clamp(max=probs.shape[1] - 1)
    before = cumulative.gather(1, index) - probs.gather(1, index)
    return index[:, 0], (target - before).clamp(min=0.0)[:, 0]


def _by_settings(
    rows: Tensor,
    runs: Sequence[tuple[BranchingConfig, int]],
    key: Callable[[BranchingConfig], Hashable],
    process: Callable[[Tensor, BranchingConfig], Tensor],
) -> Tensor:
    """Process the rows of runs, together those of neighbours whose settings have an equal key."""
    if len(runs) == 1:
        return process(rows, runs[0][0])
    done, first = [], 0
    for _, neighbours in groupby(runs, key=lambda run: key(run[0])):
        together = list(neighbours)
        count = sum(number for _, number in together)
        done.append(process(rows[first : first + count], together[0][0]))
        first += count
    return done[0] if len(done) == 1 else torch.cat(done)


def _filter_settings(config: BranchingConfig) -> Hashable:
    return tuple(getattr(config, name) for name in OF_DISTRIBUTION)


def listed(config: BranchingConfig) -> int:
    """How many of the most likely tokens are listed."""
    return max(CANDIDATES, config.branch_factor)


def _top(probs: Tensor, count: int, width: int) -> Tensor:
    """The most likely tokens of each row, (P, 2 * width) in float64: probabilities, then tokens.
    More than `count` are filled up with probability zero.
    """
    probabilities, tokens = probs.topk(min(count, width), dim=-1)
    parts = [probabilities.double(), tokens.double()]
    if missing := width - probabilities.shape[1]:
        parts = [functional.pad(part, (0, missing)) for part in parts]
    return torch.cat(parts, dim=1)
