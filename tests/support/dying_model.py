"""A model whose process is killed once during a run, and a model that cannot be loaded."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from saying_model import STOP, SayingModel
from torch import Tensor

from eab.engine.caches.base import ForwardBatch
from eab.errors import ModelError
from eab.lessons.checks.policy import random_table

PASSES = 6  # forward passes before the process is killed


class DyingModel(SayingModel):
    """A model that kills its process after PASSES forward passes, unless one was killed already.

    Args:
        killed: A file that the process writes before it is killed; it must not exist at first.
    """

    def __init__(self, seed: int, killed: Path) -> None:
        super().__init__(random_table(seed, STOP + 1, 0.5), stop_ids=[STOP])
        self._killed, self._passes = killed, 0

    def forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        """See LanguageModel.forward."""
        self._passes += 1
        if self._passes > PASSES and not self._killed.exists():
            self._killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(batches)


def no_model() -> NoReturn:
    """Fail as the loader of a model that cannot be loaded."""
    raise ModelError("the model 'none' is missing")
