"""From logits to the processed distribution, its entropy, and draws from it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from eab.config import BranchingConfig

CANDIDATES = 8
BLOCK = 256  # tokens


class Predictions:
    """The processed next-token distributions of P paths: after temperature, top-k, top-p.

    entropies: nats. top_tokens, top_probabilities: the most likely tokens, most likely first.
    """

    entropies: list[float]
    top_tokens: list[list[int]]
    top_probabilities: list[list[float]]

    def __init__(self, logits: Tensor, config: BranchingConfig) -> None:
        self._scores = _filtered(
            logits if logits.dtype == torch.float64 else logits.float(), config
        )  # (P, V)
        self._probs = torch.softmax(self._scores, dim=-1)
        self._blocks = _block_sums(self._probs)
        count = min(max(CANDIDATES, config.branch_factor), self._probs.shape[-1])
        probabilities, tokens = self._probs.topk(count, dim=-1)
        best = self._scores.gather(1, tokens[:, :1])[:, 0]
        self._log_total = best - probabilities[:, 0].log()  # ln Z
        numbers = torch.cat(
            [self._entropies(best)[:, None].double(), probabilities.double(), tokens.double()],
            dim=1,
        )
        lines = _on_host(numbers).tolist()  # in one transfer; float64 holds all of them exactly
        self.entropies = [line[0] for line in lines]
        self.top_probabilities = [line[1 : 1 + count] for line in lines]
        self.top_tokens = [[int(token) for token in line[1 + count :]] for line in lines]

    @classmethod
    def joined(cls, lines: Sequence[tuple["Predictions", int]]) -> "Predictions":
        """The predictions of these lines, which may come from several forward passes."""
        first = lines[0][0]
        if all(source is first for source, _ in lines) and [at for _, at in lines] == list(
            range(len(first.entropies))
        ):
            return first
        found = cls.__new__(cls)
        for name in ("_scores", "_probs", "_blocks", "_log_total"):
            setattr(found, name, torch.stack([getattr(source, name)[at] for source, at in lines]))
        for name in ("entropies", "top_tokens", "top_probabilities"):
            setattr(found, name, [getattr(source, name)[at] for source, at in lines])
        return found

    def _entropies(self, best: Tensor) -> Tensor:
        """H = ln Z - sum p x score, (P,), with scores relative to the best one."""
        mean = (self._probs * self._scores).sum(dim=-1)
        if not mean.isfinite().all():  # 0 x -inf of a token that cannot come; it counts nothing
            mean = (self._probs * self._scores.clamp(min=torch.finfo(self._scores.dtype).min)).sum(
                dim=-1
            )
        return (self._log_total - best + (best * self._blocks.sum(dim=-1) - mean)).clamp(min=0.0)

    def draw(
        self, paths: Sequence[int], uniforms: Sequence[float], without: Sequence[Sequence[int]] = ()
    ) -> list[int | None]:
        """Invert the distribution of each of these paths (each named once) at its uniform, in token
        order.

        without: per path, tokens that are left out (the rest is renormalised). None where nothing
        is left. A token of probability zero is never drawn.
        """
        if not paths:
            return []
        excluded = [
            (path, token) for path, tokens in zip(paths, without, strict=False) for token in tokens
        ]
        if not excluded:
            return self._invert(paths, uniforms, self._blocks)
        lines, tokens = torch.tensor(excluded, device=self._probs.device).T
        kept = self._probs[lines, tokens]
        self._probs[lines, tokens] = (
            0.0  # in place: a copy of the vocabulary costs more than all the rest
        )
        try:
            return self._invert(paths, uniforms, _block_sums(self._probs))
        finally:
            self._probs[lines, tokens] = kept

    def _invert(
        self, paths: Sequence[int], uniforms: Sequence[float], blocks: Tensor
    ) -> list[int | None]:
        """First the block in which the running sum passes the uniform, then the token in it."""
        device, size = self._probs.device, self._probs.shape[1]
        lines = torch.tensor(paths, device=device)
        mass = blocks[lines].double().sum(dim=-1)
        aim = torch.tensor(uniforms, dtype=torch.float64, device=device) * mass
        block, rest = _passed(blocks[lines], aim)
        at = block[:, None] * BLOCK + torch.arange(BLOCK, device=device)
        inside = self._probs[lines[:, None], at.clamp(max=size - 1)] * (at < size)
        token, _ = _passed(inside, rest)
        drawn = (block * BLOCK + token).tolist()
        return [
            token if some else None for token, some in zip(drawn, (mass > 0).tolist(), strict=True)
        ]

    def log_prob(self, paths: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """ln p of one token per named path (a path may be named several times)."""
        at = torch.tensor([list(paths), list(tokens)], device=self._scores.device)
        found: list[float] = (self._scores[at[0], at[1]] - self._log_total[at[0]]).tolist()
        return found


def _on_host(numbers: Tensor) -> Tensor:
    """The same numbers in the host's memory; from CUDA through pinned memory, since other memory
    takes two copies.
    """
    if not numbers.is_cuda:
        return numbers
    pinned = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True).copy_(
        numbers, non_blocking=True
    )
    torch.cuda.current_stream(numbers.device).synchronize()
    return pinned


def _block_sums(probs: Tensor) -> Tensor:
    """Probability of each block of tokens (P, blocks): a draw looks for its block first, then for
    its token there.
    """
    whole = probs.shape[1] // BLOCK * BLOCK
    blocks = probs[:, :whole].view(len(probs), -1, BLOCK).sum(dim=-1)
    return torch.cat([blocks, probs[:, whole:].sum(dim=-1, keepdim=True)], dim=1)


def _passed(masses: Tensor, aim: Tensor) -> tuple[Tensor, Tensor]:
    """Where the running sum of `masses` (P, n) passes `aim` (P,) -> index (P,), and what of `aim`
    lies beyond the sum before it (P,)."""
    masses = (
        masses.double()
    )  # running sums in float32 would round a draw across a boundary now and then
    cumulative = masses.cumsum(dim=-1)
    total = cumulative[:, -1:]
    below = torch.nextafter(
        total, torch.zeros_like(total)
    )  # rounding must not reach past the last token
    aim = torch.minimum(aim[:, None], below)
    index = torch.searchsorted(cumulative, aim, right=True).clamp(max=masses.shape[1] - 1)
    before = cumulative.gather(1, index) - masses.gather(1, index)
    return index[:, 0], (aim - before).clamp(min=0.0)[:, 0]


def _filtered(scores: Tensor, config: BranchingConfig) -> Tensor:
    """Temperature, then top-k, then top-p, as `generate` of transformers orders and defines
    them.
    """
    if config.temperature != 1.0:
        scores = scores / config.temperature
    if not config.top_k and config.top_p == 1.0:
        return scores
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    nothing = torch.empty(0, dtype=torch.int64)
    if config.top_k:
        scores = TopKLogitsWarper(config.top_k)(nothing, scores)
    if config.top_p < 1.0:
        scores = TopPLogitsWarper(config.top_p)(nothing, scores)
    return scores
