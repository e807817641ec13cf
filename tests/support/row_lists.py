"""Lists of rows from a table of what each token sees."""

import numpy as np

from eab.engine.caches.rows import RowLists


def lists_of(seen: np.ndarray) -> RowLists:
    """The rows that each token sees, (T, C) bool."""
    tokens, rows = seen.nonzero()
    return RowLists(rows.copy(), np.searchsorted(tokens, np.arange(len(seen) + 1)))
