"""Student's t, for confidence intervals over a few seeds."""

from bisect import bisect_right
from typing import Final

# Quantile 0.975 of Student's t, by degrees of freedom; in gaps, the row above is conservative.
_FREEDOM: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 60, 120)
_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306),
    *(2.262, 2.228, 2.179, 2.131, 2.086, 2.042, 2.000, 1.980),
)


def student(freedom: int) -> float:
    """Quantile 0.975 of Student's t for this many degrees of freedom (at least 1)."""
    return _STUDENT[bisect_right(_FREEDOM, freedom) - 1]
