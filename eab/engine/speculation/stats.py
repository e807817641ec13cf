"""Counts and times of a run's draft tokens, from its events.

They are measured; the gain that is expected from them follows from formulas. Pure Python.

`alpha` is the probability that a draft token is accepted if those before it were; it is assumed to
be the same for all draft tokens. `length` is the number of draft tokens per pass. From Leviathan,
Kalman, Matias (2023), arXiv 2211.17192, who call the length gamma.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eab.config import MAX_DRAFT
from eab.run import RunState


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """Figures of a run's decode steps after the first, which the prefill decides."""

    steps: int
    forward_passes: int
    draft_tokens: int
    accepted: int
    rejected: int  # the first rejected token of each draft; those after it are discarded unverified
    draft_seconds: float  # time of the drafter in these passes
    forward_seconds: float  # time of the passes
    seconds: float  # time of the passes with everything else that belongs to a step
    tokens: int

    @property
    def verified(self) -> int:
        """Draft tokens that were accepted or rejected."""
        return self.accepted + self.rejected

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted divided by verified draft tokens: an estimate of alpha."""
        return self.accepted / self.verified if self.verified else None

    @property
    def steps_per_pass(self) -> float | None:
        """Mean number of steps decided per forward pass."""
        return self.steps / self.forward_passes if self.forward_passes else None


def speculation_stats(run: RunState) -> SpeculationStats:
    """The counts and times of a run, or of a part of it."""
    timed = [step.timing for step in run.steps[1:] if step.timing is not None]
    return SpeculationStats(
        steps=max(0, len(run.steps) - 1),
        forward_passes=sum(step.forward_passes for step in run.steps[1:]),
        draft_tokens=sum(len(draft.draft_tokens) for draft in run.speculations),
        accepted=sum(draft.accepted for draft in run.speculations),
        rejected=sum(draft.verified - draft.accepted for draft in run.speculations),
        draft_seconds=sum(timing.draft_seconds for timing in timed),
        forward_seconds=sum(timing.forward_seconds for timing in timed),
        seconds=sum(timing.seconds for timing in timed),
        tokens=sum(timing.tokens for timing in timed),
    )


def fit_pass_seconds(passes: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Fit start + slope * T to the seconds of a pass of T tokens, by least squares. Return start
    (seconds) and slope (seconds per token); None unless the passes differ in size.

    Args:
        passes: Mean tokens and mean seconds of the passes of each run.
    """
    sizes, times = [size for size, _ in passes], [seconds for _, seconds in passes]
    if len(sizes) < 2 or max(sizes) - min(sizes) < 0.5:
        return None
    mean_size, mean_seconds = sum(sizes) / len(sizes), sum(times) / len(times)
    variance = sum((size - mean_size) ** 2 for size in sizes)
    covariance = sum((size - mean_size) * (seconds - mean_seconds) for size, seconds in passes)
    slope = max(0.0, covariance / variance)
    return max(0.0, mean_seconds - slope * mean_size), slope


def expected_tokens(alpha: float, length: int) -> float:
    """Expected tokens per pass on a single path, (1 - alpha^(length + 1)) / (1 - alpha).

    Equation 1 of the paper.
    """
    return sum(alpha**index for index in range(length + 1))


def speed_up(
    alpha: float, length: int, draft_cost: float, pass_cost: Callable[[int], float]
) -> float:
    """Time of plain decoding divided by the time with speculation, for a single path.

    Args:
        draft_cost: Time of one draft token, relative to a pass of one token.
        pass_cost: Number of tokens in a pass -> its time, relative to a pass of one token. Theorem
            3.8 of the paper assumes 1, which does not hold on any CPU.
    """
    return expected_tokens(alpha, length) / (length * draft_cost + pass_cost(length + 1))


def best_length(alpha: float, draft_cost: float, pass_cost: Callable[[int], float]) -> int:
    """The fastest length, at most MAX_DRAFT; 0 if speculation does not pay off."""
    return max(
        range(MAX_DRAFT + 1), key=lambda length: speed_up(alpha, length, draft_cost, pass_cost)
    )
