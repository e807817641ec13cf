"""Fold events into the state of a run: `fold(events) -> RunState`. Replay needs only this.

Every prefix of an event list folds, so a run that is live, was stopped or failed is just shorter.
"""

from collections.abc import Iterable

from eab.errors import RecordError
from eab.formatting import counted
from eab.run.events import Event, Probed, Progressed, RunEnded, RunStarted
from eab.run.state import RunState, raise_if_failed
from eab.run.tree import (
    Path,
    PathStatus,
    Sample,
    Step,
    Token,
    largest_first,
    least_probability,
    log_prob_of,
    mean_entropy_of,
)

__all__ = [
    "Path",
    "PathStatus",
    "RunFold",
    "RunState",
    "Sample",
    "Step",
    "Token",
    "before_end",
    "fold",
    "fold_prefix",
    "largest_first",
    "least_probability",
    "log_prob_of",
    "mean_entropy_of",
]


class RunFold:
    """The state of a run that may still be probing its prompt."""

    def __init__(self) -> None:
        self.probed: list[Probed] = []  # the steps of the greedy probe so far
        self.run: RunState | None = None  # None until it has started
        self._told: Progressed | None = None  # by a job that extends the run
        self._ended: RunEnded | None = None  # set if the run ended while probing

    @property
    def ended(self) -> RunEnded | None:
        """The final event; None until the run has ended."""
        return self._ended if self.run is None else self.run.ended

    @property
    def progress(self) -> Progressed:
        """Progress towards the limit on steps, or of a job that extends the run."""
        if self._told is not None:
            return self._told
        if self.run is None:
            if not self.probed:
                return Progressed(0.0, "Reading the prompt")
            return Progressed(0.0, f"The most likely text first: token {len(self.probed)}")
        config = self.run.started.config
        if not config.by_step:  # one path may be complete long before the others
            tokens, most = self.run.new_tokens_computed, config.most_tokens
            return Progressed(min(1.0, tokens / most), f"Token {tokens} of at most {most}")
        steps, last = len(self.run.steps), config.max_new_tokens
        return Progressed(min(1.0, steps / last), f"Step {steps} of {last}")

    @property
    def made(self) -> str:
        """The number of steps so far, as text; tokens, if the settings ended the run early, and
        why no more could matter, if it is decided.
        """
        if self.run is not None and self.ended is not None and self.ended.early:
            tokens, left = counted(self.run.tokens_through_model, "token"), self.run.tokens_left
            if self.ended.reason == "decided":
                what = "leading label" if self.run.started.config.label_words else "answer"
                return (
                    f"{tokens}; up to {left:,} more in its live texts could not change the {what}"
                )
            return f"{tokens}; its live texts could have up to {left:,} more"
        return counted(len(self.run.steps) if self.run is not None else 0, "step")

    def apply(self, event: Event | Progressed) -> None:
        """Fold one more event; RecordError if it cannot follow what came before."""
        if isinstance(event, Progressed):
            self._told = event
        elif self.run is not None:
            self.run.apply(event)
        elif self._ended is not None:
            raise RecordError(f"the run continues with {type(event).__name__} after its end")
        elif isinstance(event, RunStarted):
            self.run = RunState(event, [probed.entropy for probed in self.probed])
        elif isinstance(event, Probed):
            self.probed.append(event)
        elif isinstance(event, RunEnded):
            self._ended = event
        else:
            raise RecordError(
                f"the run begins with {type(event).__name__}; it must begin with RunStarted"
            )

    def started_run(self) -> RunState:
        """The run; RecordError if it has not started, MemoryLimitError if it failed before that."""
        if self.run is not None:
            return self.run
        raise_if_failed(self._ended)
        raise RecordError("the run has not started; there is nothing to show")


def fold_prefix(events: Iterable[Event]) -> RunFold:
    """The state after these events, in which the run may not have started yet."""
    state = RunFold()
    for event in events:
        state.apply(event)
    return state


def before_end(events: Iterable[Event]) -> list[Event]:
    """The events of a run without its end, so that others can follow."""
    return [event for event in events if not isinstance(event, RunEnded)]


def fold(events: Iterable[Event]) -> RunState:
    """The run after these events; raises like `RunFold.started_run`."""
    return fold_prefix(events).started_run()
