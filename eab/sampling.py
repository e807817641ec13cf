"""From logits to the processed distribution, its entropy, and draws from it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from eab.config import BranchingConfig

CANDIDATES = 8


class Predictions:
    """The processed next-token distributions of P paths: after temperature, top-k, top-p.

    entropies: nats. top_tokens, top_probabilities: the most likely tokens, most likely first.
    """

    def __init__(self, logits: Tensor, config: BranchingConfig) -> None:
        scores = logits if logits.dtype == torch.float64 else logits.float()  # (P, V)
        self._log_probs = torch.log_softmax(_filtered(scores, config), dim=-1)
        self._probs = self._log_probs.exp()
        finite = self._log_probs.clamp(min=torch.finfo(self._log_probs.dtype).min)  # 0 x -inf would be NaN
        self.entropies: list[float] = (-(self._probs * finite).sum(dim=-1)).clamp(min=0.0).tolist()
        count = min(max(CANDIDATES, config.branch_factor), self._probs.shape[-1])
        probabilities, tokens = self._probs.topk(count, dim=-1)
        self.top_tokens: list[list[int]] = tokens.tolist()
        self.top_probabilities: list[list[float]] = probabilities.tolist()

    def draw(
        self, paths: Sequence[int], uniforms: Sequence[float], without: Sequence[Sequence[int]] = ()
    ) -> list[int | None]:
        """Invert the distribution of each of these paths at its uniform, in token order.

        without: per path, tokens that are left out (the rest is renormalised). None where nothing is left.
        A token of probability zero is never drawn.
        """
        if not paths:
            return []
        whole = not without and list(paths) == list(range(len(self._probs)))
        probs = self._probs if whole else self._probs[list(paths)]
        for line, tokens in enumerate(without):
            probs[line, list(tokens)] = 0.0
        cumulative = probs.cumsum(dim=-1)
        total = cumulative[:, -1:]
        at = torch.tensor(uniforms, dtype=torch.float64, device=probs.device)[:, None] * total
        below = torch.nextafter(total, torch.zeros_like(total))  # rounding must not reach past the last token
        drawn = torch.searchsorted(cumulative, torch.minimum(at.to(total.dtype), below), right=True)
        return [
            None if empty else token
            for token, empty in zip(drawn[:, 0].tolist(), (total[:, 0] <= 0).tolist(), strict=True)
        ]

    def log_prob(self, paths: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """ln p of one token per named path (a path may be named several times)."""
        at = torch.tensor([list(paths), list(tokens)], device=self._log_probs.device)
        found: list[float] = self._log_probs[at[0], at[1]].tolist()
        return found


def _filtered(scores: Tensor, config: BranchingConfig) -> Tensor:
    """Temperature, then top-k, then top-p, as `generate` of transformers orders and defines them."""
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
