"""Save the state of a training run, so that an interrupted run can be resumed."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training.batches import PassReader


@dataclass
class Progress:
    """How far a training run has come."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def save(path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], reader: PassReader,
         progress: Progress) -> None:  # fmt: skip
    """Write everything a resumed run needs. The old file stays until the new file is complete."""
    state = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "place": (reader.number, reader.position),
        "progress": asdict(progress),
    }
    temporary = path.with_suffix(".writing")
    torch.save(state, temporary)
    os.replace(temporary, path)


def load(
    path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer]
) -> tuple[Progress, tuple[int, int]]:
    """Restore model and optimisers in place. Returns the progress and the position in the data."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, stored in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(stored)
    return Progress(**state["progress"]), state["place"]
