"""From logits to the processed distribution, its entropy, and draws from it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from eab.config import BranchingConfig

CANDIDATES = 8  # how many of the most likely tokens are listed, at least
BLOCK = 256  # tokens


class Predictions:
    """The processed next-token distributions of a batch: after temperature, top-k and top-p.

    Attributes:
        entropies: Entropy at each batch index, in nats.
        top_tokens: The most likely tokens at each batch index, most likely first.
        top_probabilities: Their probabilities.
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
        rows = _on_host(numbers).tolist()  # in one transfer; float64 holds all of them exactly
        self.entropies = [row[0] for row in rows]
        self.top_probabilities = [row[1 : 1 + count] for row in rows]
        self.top_tokens = [[int(token) for token in row[1 + count :]] for row in rows]

    @classmethod
    def joined(cls, sources: Sequence[tuple["Predictions", int]]) -> "Predictions":
        """One batch from batch indices of other ones, which may come from several forward
        passes.
        """
        first = sources[0][0]
        if all(source is first for source, _ in sources) and [at for _, at in sources] == list(
            range(len(first.entropies))
        ):
            return first
        found = cls.__new__(cls)
        for name in ("_scores", "_probs", "_blocks", "_log_total"):
            setattr(found, name, torch.stack([getattr(source, name)[at] for source, at in sources]))
        for name in ("entropies", "top_tokens", "top_probabilities"):
            setattr(found, name, [getattr(source, name)[at] for source, at in sources])
        return found

    def _entropies(self, best: Tensor) -> Tensor:
        """H = ln Z - sum p x score, (P,), with scores relative to the best one, (P,)."""
        mean = (self._probs * self._scores).sum(dim=-1)
        if not mean.isfinite().all():  # 0 x -inf of an impossible token must count as 0
            mean = (self._probs * self._scores.clamp(min=torch.finfo(self._scores.dtype).min)).sum(
                dim=-1
            )
        return (self._log_total - best + (best * self._blocks.sum(dim=-1) - mean)).clamp(min=0.0)

    def draw(
        self,
        indices: Sequence[int],
        uniforms: Sequence[float],
        excluded: Sequence[Sequence[int]] = (),
    ) -> list[int | None]:
        """Draw tokens by inverting the distributions, in token order.

        Args:
            indices: Batch indices to draw at; each occurs once if tokens are excluded.
            uniforms: A random number in [0, 1) for each index.
            excluded: For each index, tokens that must not be drawn; the rest is renormalised.

        Returns:
            A token for each index; None where no token is left. A token of probability zero is
            never drawn.
        """
        if not indices:
            return []
        pairs = [
            (index, token)
            for index, tokens in zip(indices, excluded, strict=False)
            for token in tokens
        ]
        if not pairs:
            return self._invert(indices, uniforms, self._blocks)
        rows, tokens = torch.tensor(pairs, device=self._probs.device).T
        saved = self._probs[rows, tokens]
        # In place: copying all probabilities would take longer than everything else.
        self._probs[rows, tokens] = 0.0
        try:
            return self._invert(indices, uniforms, _block_sums(self._probs))
        finally:
            self._probs[rows, tokens] = saved

    def _invert(
        self, indices: Sequence[int], uniforms: Sequence[float], blocks: Tensor
    ) -> list[int | None]:
        """Find the block in which the running sum passes the uniform, then the token in it."""
        device, size = self._probs.device, self._probs.shape[1]
        rows = torch.tensor(indices, device=device)
        mass = blocks[rows].double().sum(dim=-1)
        target = torch.tensor(uniforms, dtype=torch.float64, device=device) * mass
        block, rest = _search(blocks[rows], target)
        at = block[:, None] * BLOCK + torch.arange(BLOCK, device=device)
        inside = self._probs[rows[:, None], at.clamp(max=size - 1)] * (at < size)
        token, _ = _search(inside, rest)
        drawn = (block * BLOCK + token).tolist()
        return [
            token if some else None for token, some in zip(drawn, (mass > 0).tolist(), strict=True)
        ]

    def log_prob(self, indices: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """ln p of one token at each of these batch indices; an index may occur several times."""
        at = torch.tensor([list(indices), list(tokens)], device=self._scores.device)
        found: list[float] = (self._scores[at[0], at[1]] - self._log_total[at[0]]).tolist()
        return found


def _on_host(numbers: Tensor) -> Tensor:
    """The same numbers in host memory; from CUDA through pinned memory, because other memory
    needs two copies.
    """
    if not numbers.is_cuda:
        return numbers
    pinned = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True).copy_(
        numbers, non_blocking=True
    )
    torch.cuda.current_stream(numbers.device).synchronize()
    return pinned


def _block_sums(probs: Tensor) -> Tensor:
    """Probability of each block of tokens, (P, blocks): a draw finds its block first, then the
    token in it.
    """
    whole = probs.shape[1] // BLOCK * BLOCK
    blocks = probs[:, :whole].view(len(probs), -1, BLOCK).sum(dim=-1)
    return torch.cat([blocks, probs[:, whole:].sum(dim=-1, keepdim=True)], dim=1)


def _search(masses: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Find where a running sum passes a target.

    Args:
        masses: Summed along the last dimension, (P, n).
        target: (P,).

    Returns:
        The index, (P,), and how far the target exceeds the sum before this index, (P,).
    """
    # In float32, rounding of the running sums would sometimes move a draw across a boundary.
    masses = masses.double()
    cumulative = masses.cumsum(dim=-1)
    total = cumulative[:, -1:]
    # Rounding must not reach beyond the last token.
    below = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(target[:, None], below)
    index = torch.searchsorted(cumulative, target, right=True).clamp(max=masses.shape[1] - 1)
    before = cumulative.gather(1, index) - masses.gather(1, index)
    return index[:, 0], (target - before).clamp(min=0.0)[:, 0]


def _filtered(scores: Tensor, config: BranchingConfig) -> Tensor:
    """Apply temperature, then top-k, then top-p; order and definitions are those of `generate` in
    transformers.
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
