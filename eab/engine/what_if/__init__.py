"""A finished run at other settings, computed from its events without the model (`resimulate`): its
events as decisions, what each live path saw at a step, and what it became. Imports no torch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from eab.errors import RecordError
from eab.run import RunFold, RunState
from eab.run.events import (
    Event,
    Forked,
    LimitActed,
    NewToken,
    PathFinished,
    PathPrediction,
    Predicted,
    Pruned,
    Reweighted,
    RunEnded,
    RunStarted,
    TokensAppended,
)


@dataclass(slots=True)
class Decision:
    """The outcome for one path at one step."""

    predicted: PathPrediction  # what the decision saw
    weight: float  # the path's weight before the step
    # the tokens that it continued with: one per child, one if it did not fork, none if the path
    # limit dropped it
    tokens: list[NewToken] = field(default_factory=list)
    paths: tuple[int, ...] = ()  # the ids of the children, or the path's own id if it did not fork
    weights: tuple[float, ...] = ()  # their weights
    # index of the child that would have followed without a fork; None if the trace does not say
    heir: int | None = None
    dropped: tuple[int, ...] = ()  # the tokens of children that the path limit dropped at birth


Why = Literal["fork", "limit", "heir", "dropped", "ended"]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A place in the resimulated run where only the model could say what happens next."""

    step: int  # the step of the run
    path: int  # the path in the resimulated run
    # `fork`: the path would fork here, but did not in the recorded run. `limit`: the path forks,
    # but the path limit dropped some of its children. `heir`: the path does not fork, and the trace
    # does not say which child would have followed; the heaviest is shown. `dropped`: the path limit
    # dropped this path in the recorded run; it stays as it was. `ended`: the recorded run ended
    # here.
    why: Why


class Trace:
    """A recorded run whose decisions can be looked up by step and path.

    `texts` maps each token id to its text and whether it is a control token. Raises RecordError if
    the run has not started or its events contradict each other.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._fold = RunFold()
        self.stop_tokens: set[int] = set()
        self.texts: dict[int, tuple[str, bool]] = {}
        self.ended: RunEnded | None = None
        self._decisions: dict[tuple[int, int], Decision] = {}
        self._changes: dict[tuple[int, int], float | None] = {}
        for event in events:
            self._note_before(event)
            self._fold.apply(event)
            self._note_after(event)
        self.started: RunStarted = self.run.started

    @property
    def run(self) -> RunState:
        """The recorded run so far."""
        return self._fold.started_run()

    def decision(self, step: int, path: int) -> Decision | None:
        """The decision for a live path at this step; None if the run had ended."""
        decision = self._decisions.get((step, path))
        complete = decision is not None and (decision.tokens or (step, path) in self._changes)
        return decision if complete else None

    def weight_after(self, step: int, path: int, before: float) -> float | None:
        """The weight of a finished path after this step; None if it was dropped."""
        return self._changes.get((step, path), before)

    def _note_before(self, event: Event) -> None:
        match event:
            case Predicted():
                for seen in event.predictions:
                    if seen.path < len(self.run.paths):
                        decision = Decision(seen, self.run.paths[seen.path].weight)
                        self._decisions[event.step, seen.path] = decision
            case LimitActed():
                for path, tokens in event.dropped:
                    self._at(event.step, path).dropped = tokens
            case Forked():
                decision = self._at(event.step, event.path)
                decision.paths, decision.weights = event.children, event.weights
                decision.heir = (
                    event.children.index(event.heir) if event.heir in event.children else None
                )

    def _note_after(self, event: Event) -> None:
        match event:
            case TokensAppended():
                for new in event.tokens:
                    self._append(event.step, new)
            case Reweighted():
                for path, weight in event.weights:
                    self._reweight(event.step, path, weight)
            case Pruned():
                self._changes[event.step, event.path] = None
            case PathFinished(reason="stop") if not self.run.paths[event.path].cut:
                self.stop_tokens |= {last.id for last in self.run.paths[event.path].tokens[-1:]}
            case RunEnded():
                self.ended = event

    def _append(self, step: int, new: NewToken) -> None:
        self.texts[new.token] = (new.text, new.special)
        own = self._decisions.get((step, new.path))
        if own is None or own.paths:
            self._at(step, self.run.paths[new.path].parent).tokens.append(new)
            return
        own.tokens, own.paths, own.weights = [new], (new.path,), (own.weight,)
        own.heir = None if own.dropped else 0

    def _reweight(self, step: int, path: int, weight: float) -> None:
        self._changes[step, path] = weight
        decision = self._decisions.get((step, path))
        if decision is not None and decision.paths == (path,):
            decision.weights = (weight,)

    def _at(self, step: int, path: int) -> Decision:
        if (step, path) not in self._decisions:
            raise RecordError(
                f"path {path} continues at step {step} without a prediction; the run cannot be "
                "resimulated"
            )
        return self._decisions[step, path]
