"""What became of the guesses of a run: counts and times, from its events. Pure Python; all of it
measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from eab.run import Run


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """steps: decode steps after the first, which the prompt's pass decides; passes: forward passes
    that they took.

    guesses, right: tokens. failed: how often a path had a wrong guess; those after it were in vain.
    draft_seconds, forward_seconds, seconds: of these passes; the last with all that belongs to a
    step.
    tokens: through the model in these passes.
    """

    steps: int
    passes: int
    guesses: int
    right: int
    failed: int
    draft_seconds: float
    forward_seconds: float
    seconds: float
    tokens: int

    @property
    def acceptance(self) -> float | None:
        """Estimate of alpha: of the guesses that were tried in earnest, those that were right."""
        tried = self.right + self.failed
        return self.right / tried if tried else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Steps that a forward pass brought."""
        return self.steps / self.passes if self.passes else None


def speculation_stats(run: Run) -> SpeculationStats:
    """Of a run, or of a part of it."""
    timed = [step.timing for step in run.steps[1:] if step.timing is not None]
    return SpeculationStats(
        steps=max(0, len(run.steps) - 1),
        passes=sum(step.forward_passes for step in run.steps[1:]),
        guesses=sum(len(tried.draft_tokens) for tried in run.speculations),
        right=sum(tried.accepted for tried in run.speculations),
        failed=sum(tried.verified - tried.accepted for tried in run.speculations),
        draft_seconds=sum(one.draft_seconds for one in timed),
        forward_seconds=sum(one.forward_seconds for one in timed),
        seconds=sum(one.seconds for one in timed),
        tokens=sum(one.tokens for one in timed),
    )


def pass_line(runs: Iterable[Run]) -> tuple[float, float] | None:
    """Seconds of a pass of T tokens as start + slope * T, least squares over the runs' mean passes.

    None without passes of different sizes.
    """
    found = [one for one in map(speculation_stats, runs) if one.passes]
    sizes = [one.tokens / one.passes for one in found]
    seconds = [one.forward_seconds / one.passes for one in found]
    if len(sizes) < 2 or max(sizes) - min(sizes) < 0.5:
        return None
    middle, mean = sum(sizes) / len(sizes), sum(seconds) / len(seconds)
    spread = sum((size - middle) ** 2 for size in sizes)
    slope = max(
        0.0,
        sum((size - middle) * (s - mean) for size, s in zip(sizes, seconds, strict=True)) / spread,
    )
    return max(0.0, mean - slope * middle), slope
