"""How many tokens to guess: a fixed number, or what pays on this machine, by what this run has shown.

A pass of T tokens takes a + b T seconds. One more guess costs b + d: a token more in the pass, and the drafter's time.
If it is right, b comes back, since that token need not be read again, and w passes are saved: w = 1 for a single path;
in a tree a step is over only when all paths have come to it. The j-th guess is right with probability alpha^j. So guess
as long as alpha^j (b + w a) > b + d, with a, b, d, w and alpha as this run has shown them lately. Leviathan et al.
(2023, theorem 3.8) lead to the same rule where w = 1 and a longer pass costs nothing (b = 0).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from eab.config import MAX_DRAFT

FIRST: Final = 2  # guesses while nothing is known
MARGIN: Final = 1.1  # the gain must be this many times the cost
MEMORY: Final = 0.93  # weight of what was seen a pass ago
LOOK_AGAIN: Final = 24  # passes without a guess until one is tried again; twice as many each time that it does not pay


@dataclass(frozen=True, slots=True)
class Tried:
    """What a forward pass did. tokens: through the model. steps: how many were decided after it.

    judged: per path with guesses, how many were made, how many were right, and how many wrong: at most one, for those
    after it were in vain.
    """

    tokens: int
    forward_seconds: float
    draft_seconds: float
    judged: Sequence[tuple[int, int, int]]
    steps: int


class DraftLength(Protocol):
    """Chooses the number of guesses before each pass, and hears what came of them."""

    def most(self) -> int:
        """Guesses per path in the next pass, at most."""
        ...

    def heard(self, tried: Tried) -> None:
        """The pass is done."""
        ...


class FixedLength:
    """Always the same number."""

    def __init__(self, length: int) -> None:
        self._length = length

    def most(self) -> int:
        """See DraftLength.most."""
        return self._length

    def heard(self, tried: Tried) -> None:
        """See DraftLength.heard."""


class AdaptiveLength:
    """The number that pays. It changes which passes are made, never which tokens come."""

    def __init__(self) -> None:
        self._passes = _Line()
        self._right, self._wrong = 2.0, 1.0  # guesses, the recent ones weighing most
        self._saved, self._accepted = 2.0, 2.0  # passes, by guesses that were right
        self._guesses = self._draft_seconds = 0.0
        self._silent, self._patience = 0, LOOK_AGAIN

    def most(self) -> int:
        """See DraftLength.most."""
        if not self._passes.known:  # passes of two sizes show what a token costs
            self._silent += 1
            return FIRST * (self._silent % 2)
        length = self._paying()
        if length:
            self._patience = LOOK_AGAIN
        elif self._silent >= self._patience:
            length, self._patience = 1, 2 * self._patience
        self._silent = 0 if length else self._silent + 1
        return length

    def _paying(self) -> int:
        worth = min(1.0, max(0.0, self._saved / self._accepted))
        gain = self._passes.slope + worth * self._passes.start
        cost = self._passes.slope + (self._draft_seconds / self._guesses if self._guesses else 0.0)
        alpha = self._right / (self._right + self._wrong)
        length = 0
        while length < MAX_DRAFT and alpha ** (length + 1) * gain > MARGIN * cost:
            length += 1
        return length

    def heard(self, tried: Tried) -> None:
        """See DraftLength.heard. After the first wrong guess nothing is known of the others."""
        self._passes.add(tried.tokens, tried.forward_seconds)
        if not tried.judged:
            return
        accepted = sum(right for _, right, _ in tried.judged)
        self._right = MEMORY * self._right + accepted
        self._wrong = MEMORY * self._wrong + sum(wrong for _, _, wrong in tried.judged)
        self._saved = MEMORY * self._saved + tried.steps - 1
        self._accepted = MEMORY * self._accepted + accepted
        self._guesses = MEMORY * self._guesses + sum(made for made, _, _ in tried.judged)
        self._draft_seconds = MEMORY * self._draft_seconds + tried.draft_seconds


class _Line:
    """Seconds of a pass over its tokens, start + slope x tokens, by weighted least squares."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        self._n, self._x, self._y, self._xx, self._xy = (
            MEMORY * old + new
            for old, new in zip((self._n, self._x, self._y, self._xx, self._xy), (1, x, y, x * x, x * y), strict=True)
        )

    @property
    def _spread(self) -> float:
        return self._n * self._xx - self._x * self._x

    @property
    def known(self) -> bool:
        """Whether passes of different sizes were seen."""
        return self._spread > 1e-6 * max(1.0, self._xx)

    @property
    def slope(self) -> float:
        """Seconds per token; not below zero."""
        return max(0.0, (self._n * self._xy - self._x * self._y) / self._spread)

    @property
    def start(self) -> float:
        """Seconds of a pass without tokens; not below zero."""
        return max(0.0, (self._y - self.slope * self._x) / self._n)
