"""A model whose process is killed once, in the middle of its work; and one that cannot be loaded."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from saying_model import STOP, SayingModel
from table_model import random_table
from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.errors import ModelError

PASSES = 6  # before the process is killed


class DyingModel(SayingModel):
    """Kills the process that runs it after some passes, if no process has been killed yet.

    Args:
        killed: A file that the process writes before it goes; it must not exist at first.
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
    """A model that cannot be loaded."""
    raise ModelError("the model 'none' is missing")
