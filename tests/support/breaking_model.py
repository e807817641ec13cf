"""A model with one forward pass that fails; all later passes work again."""

from collections.abc import Sequence

from torch import Tensor

from eab.engine.caches.base import ForwardBatch
from eab.lessons.checks.policy import TableModel, random_table


class BreakingModel(TableModel):
    """A table model of twelve tokens with one forward pass that fails.

    Args:
        error: The exception that this pass raises.
        passes: The number of passes that work before it.
    """

    def __init__(self, error: BaseException, passes: int = 4) -> None:
        super().__init__(random_table(3, 12))
        self._error, self._passes = error, passes

    def forward(self, batches: Sequence[ForwardBatch]) -> Tensor:
        """See LanguageModel.forward."""
        self._passes -= 1
        if self._passes == -1:
            raise self._error
        return super().forward(batches)
