"""What became of the draft tokens of a run: counts and times, from its events.

Pure Python; everything here is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eab.run import RunState


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """The decode steps of a run after the first, which the pass of the prompt decides."""

    steps: int
    forward_passes: int
    draft_tokens: int
    accepted: int
    rejected: int  # the first rejected token of a pass; those after it are discarded unverified
    draft_seconds: float  # what the drafter took in these passes
    forward_seconds: float  # what the passes took
    seconds: float  # what the passes took with everything that belongs to a step
    tokens: int

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over verified draft tokens: an estimate of alpha (see `formulas`)."""
        verified = self.accepted + self.rejected
        return self.accepted / verified if verified else None

    @property
    def steps_per_pass(self) -> float | None:
        """Steps that a forward pass decided, on average."""
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
    """Fit the seconds of a pass of T tokens to start + slope * T, by least squares: start (seconds)
    and slope (seconds per token), None without passes of different sizes.

    Args:
        passes: Tokens and seconds of mean passes of several runs.
    """
    sizes, times = [size for size, _ in passes], [seconds for _, seconds in passes]
    if len(sizes) < 2 or max(sizes) - min(sizes) < 0.5:
        return None
    mean_size, mean_seconds = sum(sizes) / len(sizes), sum(times) / len(times)
    variance = sum((size - mean_size) ** 2 for size in sizes)
    covariance = sum((size - mean_size) * (seconds - mean_seconds) for size, seconds in passes)
    slope = max(0.0, covariance / variance)
    return max(0.0, mean_seconds - slope * mean_size), slope
