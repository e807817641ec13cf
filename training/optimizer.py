"""The optimisers: Muon for the weight matrices of the layers, AdamW for embeddings and norms.

``torch.optim.Muon`` orthogonalises in bfloat16, which processors without bfloat16 units have to
emulate (measured: six times the cost of the whole forward and backward pass). This version computes
in float32 outside CUDA, and handles matrices of equal shape in one batch.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


def orthogonalise(batch: Tensor) -> Tensor:
    """Push the singular values of each matrix towards 1 (quintic Newton-Schulz iteration)."""
    a, b, c = NEWTON_SCHULZ
    x: Tensor = batch.bfloat16() if batch.is_cuda else batch
    tall = x.size(-2) > x.size(-1)
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result.to(batch.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised updates (Jordan et al., 2024) and decoupled weight decay."""

    def __init__(
        self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.1
    ):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for param in group["params"]:
                if param.grad is not None:
                    by_shape[param.shape].append(param)
            for params in by_shape.values():
                self._update(params, group["lr"], group["momentum"], group["weight_decay"])

    def _update(
        self, params: list[Tensor], lr: float, momentum: float, weight_decay: float
    ) -> None:
        directions = []
        for param in params:
            assert param.grad is not None
            if "momentum" not in self.state[param]:
                self.state[param]["momentum"] = torch.zeros_like(param)
            buffer = self.state[param]["momentum"]
            buffer.lerp_(param.grad, 1 - momentum)
            directions.append(param.grad.lerp(buffer, momentum))
        scale = max(1.0, params[0].size(0) / params[0].size(1)) ** 0.5
        for param, update in zip(params, orthogonalise(torch.stack(directions)), strict=True):
            param.mul_(1 - lr * weight_decay).add_(update, alpha=-lr * scale)


def build_optimizers(
    model: nn.Module, muon_lr: float, adam_lr: float
) -> list[torch.optim.Optimizer]:
    """Muon for the weight matrices of the layers, AdamW for everything else."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, param in model.named_parameters():
        in_body = param.ndim == 2 and "embed" not in name and "lm_head" not in name
        (matrices if in_body else others).append(param)
    adam = torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    return [Muon(matrices, lr=muon_lr), adam]
