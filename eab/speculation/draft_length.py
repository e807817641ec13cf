"""How many tokens to guess: a fixed number, or what pays on this machine, by what this run has
shown.

A pass of T tokens takes a + b T seconds. One more guess costs b + d: a token more in the pass, and
the drafter's time.
If it is right, b comes back, since that token need not be read again, and w passes are saved: w = 1
for a single path; in a tree a step is over only when all paths have come to it, so w is about 1 / P
for P paths, or less. The j-th guess is right with probability alpha^j. So guess as long as alpha^j
(b + w a) > b + d, with a, b, d, w and alpha as this run has shown them lately. Leviathan et al.
(2023, theorem 3.8) lead to the same rule where w = 1 and a longer pass costs nothing (b = 0).

Where guessing does not pay, a single guess is tried now and then, for the text may have changed: as
often as what such tries lose stays within SHARE of the run's time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from eab.config import MAX_DRAFT

MARGIN: Final = 1.2  # the gain must be this many times the cost
SETTLE: Final = 8  # passes: a draft model reads all of the text before its first guess
FIRST_COST: Final = 0.2  # of a pass, until the times of this run say more
MEMORY: Final = 0.93  # weight of what was seen a pass ago
SHARE: Final = 0.01  # of the time, to find out whether guessing pays by now
SPREAD: Final = (
    0.05  # tokens squared: variance of the passes' sizes from which on they tell what a token costs
)
TOKEN: Final = 0.01  # of a pass without tokens: what one in it costs at least, whatever noise says


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """What a forward pass did. tokens: through the model. seconds: to read them and take in what
    the model says.

    asked: whether the drafter was asked. judged: per path with guesses, how many were made, and how
    many were right. A guess that cannot be judged, because the path may fork there, is in vain like
    a wrong one.
    paths: in the pass. steps: how many were decided after it.
    """

    tokens: int
    seconds: float
    draft_seconds: float
    asked: bool
    verified: Sequence[tuple[int, int]]
    paths: int
    steps: int


class DraftLength(Protocol):
    """Chooses the number of guesses before each pass, and hears what came of them."""

    def most(self) -> int:
        """Guesses per path in the next pass, at most."""
        ...

    def heard(self, tried: PassOutcome) -> None:
        """The pass is done."""
        ...


class FixedLength:
    """Always the same number."""

    def __init__(self, length: int) -> None:
        self._length = length

    def most(self) -> int:
        """See DraftLength.most."""
        return self._length

    def heard(self, tried: PassOutcome) -> None:
        """See DraftLength.heard."""


class AdaptiveLength:
    """The number that pays. It changes which passes are made, never which tokens come.

    reads: the drafter reads the text, like a model. Then the first guess waits until the run shows
    that it does not end soon, and is taken to cost a part of a pass. From one guess on, the number
    doubles at most from pass to pass.
    """

    def __init__(self, reads: bool = False) -> None:
        self._settle, self._first_cost = (SETTLE, FIRST_COST) if reads else (0, 0.0)
        self._passes = _Line()
        self._paths, self._length = 1, 0  # of the latest pass
        self._right, self._lost = (
            2.0,
            1.0,
        )  # guesses, the recent ones weighing most; in vain: a path's first alone
        self._saved = 0.0  # passes, by guesses that were right
        self._made = self._draft_seconds = 0.0
        self._allowance = 0.0  # seconds to try a guess with
        self._loss = 0.0  # seconds that the latest guesses lost; at first as if none had been

    def most(self) -> int:
        """See DraftLength.most."""
        if self._settle > 0:
            self._settle -= 1
            return 0
        length = self._paying()
        if not length and self._allowance > (self._loss or self._passes.mean):
            length, self._allowance = 1, 0.0
        self._length = min(length, max(1, 2 * self._length))
        return self._length

    def _paying(self) -> int:
        """Each estimate begins as if a few guesses had been made."""
        alpha = self._right / (self._right + self._lost)
        worth = min(1.0, (self._saved + 2 / self._paths) / (self._right + 2))
        drafting = (self._draft_seconds + 2 * self._first_cost * self._passes.mean) / (
            self._made + 2
        )
        gain = self._passes.slope + worth * self._passes.start
        cost = self._passes.slope + drafting
        length = 0
        while length < MAX_DRAFT and alpha ** (length + 1) * gain > MARGIN * cost:
            length += 1
        return length

    def heard(self, tried: PassOutcome) -> None:
        """See DraftLength.heard."""
        self._passes.add(tried.tokens, tried.seconds)
        self._paths = tried.paths
        self._allowance += SHARE * tried.seconds
        if not tried.asked:
            return
        made, right = (
            sum(made for made, _ in tried.verified),
            sum(right for _, right in tried.verified),
        )
        saved = tried.steps - 1
        self._right = MEMORY * self._right + right
        self._lost = MEMORY * self._lost + sum(right < made for made, right in tried.verified)
        self._saved = MEMORY * self._saved + saved
        self._made = MEMORY * self._made + made
        self._draft_seconds = MEMORY * self._draft_seconds + tried.draft_seconds
        self._loss = max(
            0.0,
            tried.draft_seconds + self._passes.slope * (made - right) - saved * self._passes.start,
        )


class _Line:
    """Seconds of a pass over its tokens, start + slope x tokens, by weighted least squares."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._slope = 0.0

    def add(self, x: float, y: float) -> None:
        self._n, self._x, self._y, self._xx, self._xy = (
            MEMORY * old + new
            for old, new in zip(
                (self._n, self._x, self._y, self._xx, self._xy),
                (1, x, y, x * x, x * y),
                strict=True,
            )
        )
        spread = self._n * self._xx - self._x * self._x
        if spread > SPREAD * self._n * self._n:  # else what was found before holds
            self._slope = (self._n * self._xy - self._x * self._y) / spread

    @property
    def mean(self) -> float:
        """Seconds of a pass, lately."""
        return self._y / self._n if self._n else 0.0

    @property
    def slope(self) -> float:
        """Seconds per token; at least TOKEN of the mean, so too where passes of different sizes
        were not seen yet.
        """
        return max(self._slope, TOKEN * self.mean)

    @property
    def start(self) -> float:
        """Seconds of a pass without tokens; not below zero."""
        return max(0.0, self.mean - self.slope * self._x / self._n) if self._n else 0.0
