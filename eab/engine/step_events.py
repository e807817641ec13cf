"""The events of one decided step."""

from dataclasses import dataclass, field

from eab.events import (
    DroppedTokens,
    Event,
    Forked,
    LimitActed,
    NewToken,
    NewWeight,
    PathFinished,
    Pruned,
    Reweighted,
    TokensAppended,
)


@dataclass(slots=True)
class StepEvents:
    """What happens to the paths in a step, collected path by path."""

    step: int
    dropped: list[DroppedTokens] = field(default_factory=list)
    pruned: list[int] = field(default_factory=list)
    forked: list[Forked] = field(default_factory=list)
    tokens: list[NewToken] = field(default_factory=list)
    weights: list[NewWeight] = field(default_factory=list)
    finished: list[PathFinished] = field(default_factory=list)

    def events(self) -> list[Event]:
        """The events in the order that `eab.events` guarantees: a path is created before it grows,
        and grows before it ends.
        """
        step = self.step
        return [
            *([LimitActed(step, tuple(self.dropped))] if self.dropped else []),
            *(Pruned(step, path) for path in self.pruned),
            *self.forked,
            *([TokensAppended(step, tuple(self.tokens))] if self.tokens else []),
            *([Reweighted(step, tuple(self.weights))] if self.weights else []),
            *self.finished,
        ]
