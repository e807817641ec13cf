"""A model whose forward pass breaks once, and works again after that."""

from collections.abc import Sequence

from table_model import TableModel, random_table
from torch import Tensor

from eab.caches.base import ForwardBatch


class BreakingModel(TableModel):
    """A table of twelve tokens.

    Args:
        error: What one of its passes raises.
        passes: How many passes work before.
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
