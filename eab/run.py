"""From events to the state of a run: `fold(events) -> Run`. Replay needs no more than this.

Every prefix of an event list folds, so a run that goes on, was stopped, or failed is just a shorter
run.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never

from eab import token_text
from eab.errors import MemoryLimitError, PromptError, RecordError
from eab.events import (
    Candidate,
    Event,
    FinishReason,
    Forked,
    Growth,
    KvMeasured,
    KVUsage,
    LimitActed,
    PathFinished,
    Predicted,
    Probed,
    Pruned,
    Reweighted,
    RowsAllocated,
    RunEnded,
    RunStarted,
    Speculated,
    StepTimed,
    TokenAppended,
)

PathStatus = Literal["live", "forked", "finished", "pruned"]


@dataclass(slots=True)
class Token:
    """One generated token.

    Attributes:
        step: The step that chose it.
        token, text, special, log_prob: As in TokenAppended.
        entropy: Of the distribution that it was drawn from, in nats.
        candidates: The most likely tokens of that distribution.
    """

    step: int
    token: int
    text: str
    special: bool
    log_prob: float
    entropy: float
    candidates: tuple[Candidate, ...]


@dataclass(slots=True)
class Path:
    """A sequence of tokens without a fork.

    Attributes:
        id: Paths are numbered in order of birth.
        parent: Id of the path that forked into it; -1 for the first path.
        weights: (step, weight from that step on), its birth first; pruning other paths changes it.
        heir: Whether it would have come without the fork.
        touched: Step of its last change.
        share: Its part of the weight of all siblings at their birth.
        limited_steps: Steps at which the path limit pruned children of it.
        fork_entropy: The entropy (nats) at which it forked.
    """

    id: int
    parent: int
    weights: list[tuple[int, float]]
    heir: bool
    touched: int
    share: float = 1.0
    tokens: list[Token] = field(default_factory=list)
    children: tuple[int, ...] = ()
    status: PathStatus = "live"
    finish_reason: FinishReason | None = None
    limited_steps: list[int] = field(default_factory=list)
    fork_entropy: float | None = None

    @property
    def weight(self) -> float:
        """Its current weight; of an ended path, the last one."""
        return self.weights[-1][1]

    @property
    def born(self) -> int:
        """The step of its first token."""
        return self.weights[0][0]

    def stands_at(self, step: int) -> bool:
        """Whether it is a leaf, live or finished, after this step."""
        return self.born <= step and not (
            self.status in ("forked", "pruned") and self.touched <= step
        )


@dataclass(slots=True)
class Step:
    """What was measured in one decode step; None where its events have not come yet."""

    step: int
    kv: KVUsage | None = None
    growth: Growth | None = None
    timing: StepTimed | None = None
    forward_passes: int = 0

    def add_timing(self, timing: StepTimed) -> None:
        """Add a forward pass: prefill in chunks, or waiting for all paths, takes several."""
        self.forward_passes += 1
        if self.timing is not None:
            timing = StepTimed(
                self.step,
                self.timing.tokens + timing.tokens,
                self.timing.seconds + timing.seconds,
                self.timing.forward_seconds + timing.forward_seconds,
                self.timing.draft_seconds + timing.draft_seconds,
            )
        self.timing = timing


@dataclass(frozen=True, slots=True)
class Sample:
    """One leaf of the tree as a text.

    Attributes:
        text: Without control tokens.
        token_ids: Of the generated tokens.
        tokens: Their texts.
        log_prob: Sum over its tokens in the processed distributions, in nats.
        weight: Its share of the estimate; the weights of all samples sum to 1.
        entropies: In nats, one per token.
        finish_reason: `unfinished` while the run goes on or if it was stopped.
        lineage: Ids of the paths that it runs through, first to last.
    """

    text: str
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    log_prob: float
    weight: float
    entropies: tuple[float, ...]
    finish_reason: Literal["stop", "length", "unfinished"]
    lineage: tuple[int, ...]


class Run:
    """The state of a run after its header, RunStarted, and any further events.

    Grow it with `apply`; read it as if it were frozen.

    Attributes:
        started: The header: prompt, model, settings.
        probe: Entropies (nats) of the greedy probe before it, for a quantile threshold.
        ended: The last event; None while the run goes on.
    """

    def __init__(self, started: RunStarted, probe: Sequence[float] = ()) -> None:
        self.started, self.probe = started, tuple(probe)
        self.ended: RunEnded | None = None
        self.paths = [Path(id=0, parent=-1, weights=[(0, 1.0)], heir=True, touched=0)]
        self.steps: list[Step] = []
        self.speculations: list[Speculated] = []
        self.events_seen = len(self.probe) + 1
        self._predicted: dict[int, Predicted] = {}

    def apply(self, event: Event) -> None:
        """Fold one more event.

        Raises:
            RecordError: The event cannot follow what came before.
        """
        if self.ended is not None:
            raise RecordError(f"the run goes on with {type(event).__name__} after its end")
        try:
            self._apply(event)
        except (IndexError, KeyError) as error:
            raise RecordError(
                f"event {self.events_seen} ({type(event).__name__}) names a path that is not born"
            ) from error
        self.events_seen += 1

    def _apply(self, event: Event) -> None:
        match event:
            case Probed() | RunStarted():
                raise RecordError("the run starts twice; a run file holds one run")
            case Predicted():
                self._live(event.path, event.step)
                self._predicted[event.path] = event
            case Speculated():
                self._path(event.path)
                self.speculations.append(event)
            case TokenAppended():
                self._append(event)
            case Forked():
                self._fork(event)
            case LimitActed():
                self._path(event.path).limited_steps.append(event.step)
            case Pruned():
                self._leaf(event.path, event.step).status = "pruned"
            case Reweighted():
                self._leaf(event.path, event.step).weights.append((event.step, event.weight))
            case PathFinished():
                path = self._live(event.path, event.step)
                path.status, path.finish_reason = "finished", event.reason
            case RowsAllocated():
                self._step(event.step).growth = event.growth
            case KvMeasured():
                for rows in event.usage.paths:
                    self._path(rows.path)
                self._step(event.step).kv = event.usage
            case StepTimed():
                self._step(event.step).add_timing(event)
            case RunEnded():
                self.ended = event
            case _:
                assert_never(event)

    def _append(self, event: TokenAppended) -> None:
        path = self._live(event.path, event.step)
        seen = self._predicted[event.path if path.tokens or path.parent < 0 else path.parent]
        if seen.step != event.step:
            raise RecordError(
                f"path {path.id} appends a token at step {event.step} that was predicted at step "
                f"{seen.step}"
            )
        path.tokens.append(
            Token(
                event.step,
                event.token,
                event.text,
                event.special,
                event.log_prob,
                seen.entropy,
                seen.candidates,
            )
        )

    def _fork(self, event: Forked) -> None:
        parent = self._live(event.path, event.step)
        if len(event.weights) != len(event.children):
            raise RecordError(
                f"path {parent.id} forks into {event.children} with {len(event.weights)} weights"
            )
        if event.children != tuple(range(len(self.paths), len(self.paths) + len(event.children))):
            raise RecordError(
                f"path {parent.id} forks into {event.children}; ids must follow the order of birth"
            )
        parent.status, parent.children = "forked", event.children
        parent.fork_entropy = self._predicted[parent.id].entropy
        total = math.fsum(event.weights)
        for child, weight in zip(event.children, event.weights, strict=True):
            share = weight / total if total > 0 else 0.0
            self.paths.append(
                Path(
                    child, parent.id, [(event.step, weight)], child == event.heir, event.step, share
                )
            )

    def _path(self, path: int) -> Path:
        if path < 0:
            raise IndexError(path)
        return self.paths[path]

    def _live(self, path: int, step: int) -> Path:
        found = self._leaf(path, step)
        if found.status != "live":
            raise RecordError(f"path {path} is {found.status}; it cannot go on")
        return found

    def _leaf(self, path: int, step: int) -> Path:
        found = self._path(path)
        if found.status not in ("live", "finished"):
            raise RecordError(
                f"path {path} is {found.status}; nothing can happen to it at step {step}"
            )
        found.touched = step
        return found

    def _step(self, step: int) -> Step:
        if step == len(self.steps):
            self.steps.append(Step(step))
        if not 0 <= step < len(self.steps):
            raise RecordError(
                f"step {step} is measured after step {len(self.steps) - 1}; steps must follow each "
                "other"
            )
        return self.steps[step]

    def raise_if_failed(self) -> None:
        """MemoryLimitError if the run ended because its KV cache outgrew the limit."""
        _raise_if_failed(self.ended)

    def lineage(self, path: int) -> tuple[int, ...]:
        """Ids of the paths from the root to this one."""
        ids: list[int] = []
        while path >= 0:
            ids.append(path)
            path = self.paths[path].parent
        return tuple(reversed(ids))

    def leaves(self) -> list[Path]:
        """Live and finished paths, in order of birth; their weights sum to 1."""
        return [path for path in self.paths if path.status in ("live", "finished")]

    def tokens(self, path: int) -> Iterator[Token]:
        """All generated tokens from the root to the end of this path."""
        for ancestor in self.lineage(path):
            yield from self.paths[ancestor].tokens

    def continuation(self, path: int, index: int, candidate: int = -1) -> tuple[int, ...]:
        """Token ids that continue the prompt up to a token of the tree, for a run from there on.

        Args:
            path: Id of the token's path.
            index: Index of the token in its path.
            candidate: Take this one of the token's candidates instead; -1 takes the token.

        Returns:
            The ids after the prompt's own, for `generate(..., continued=...)`.

        Raises:
            PromptError: The run has no such token.
        """
        if not (0 <= path < len(self.paths) and 0 <= index < len(self.paths[path].tokens)):
            raise PromptError(f"path {path} has no token {index}; choose one of the tree")
        before = [
            token.token
            for ancestor in self.lineage(path)[:-1]
            for token in self.paths[ancestor].tokens
        ]
        before += [token.token for token in self.paths[path].tokens[:index]]
        chosen = self.paths[path].tokens[index]
        if candidate >= len(chosen.candidates):
            raise PromptError(
                f"the token has {len(chosen.candidates)} candidates; there is no number {candidate}"
            )
        forced = chosen.candidates[candidate].token if candidate >= 0 else chosen.token
        return (*self.started.continued_tokens, *before, forced)

    def sample(self, path: int) -> Sample:
        """The leaf `path` as a text."""
        tokens = list(self.tokens(path))
        leaf = self.paths[path]
        return Sample(
            text=token_text.join(token.text for token in tokens if not token.special),
            token_ids=tuple(token.token for token in tokens),
            tokens=tuple(token.text for token in tokens),
            log_prob=sum(token.log_prob for token in tokens),
            weight=leaf.weight,
            entropies=tuple(token.entropy for token in tokens),
            finish_reason=leaf.finish_reason or "unfinished",
            lineage=self.lineage(path),
        )

    def samples(self) -> list[Sample]:
        """All leaves, the heaviest first."""
        return sorted(
            (self.sample(leaf.id) for leaf in self.leaves()), key=lambda sample: -sample.weight
        )

    def peak_kv(self) -> KVUsage | None:
        """The measurement with the most distinct rows in use."""
        measured = [step.kv for step in self.steps if step.kv is not None]
        return max(
            measured,
            key=lambda kv: (kv.rows_shared + kv.rows_private, kv.rows_independent),
            default=None,
        )

    def last_kv(self) -> KVUsage | None:
        """The last measurement, with the totals of the run."""
        return next((step.kv for step in reversed(self.steps) if step.kv is not None), None)

    @property
    def forward_passes(self) -> int:
        """Forward passes so far: one per step, except for prefill in chunks and speculation."""
        return sum(step.forward_passes for step in self.steps)

    @property
    def is_what_if(self) -> bool:
        """Whether it was recomputed from another run; then it has no times, and computed bytes."""
        return self.started.what_if != ""

    def seconds(self) -> float | None:
        """Wall time of all steps (measured); None for a what-if run."""
        return (
            None
            if self.is_what_if
            else sum(step.timing.seconds for step in self.steps if step.timing is not None)
        )

    def tokens_through_model(self) -> int:
        """Tokens that went through the model, including the prompt and pruned paths."""
        return sum(step.timing.tokens for step in self.steps if step.timing is not None)


class RunFold:
    """The events of a run so far: a run that may still be probing its prompt, or has started.

    Every prefix of an event list folds.

    Attributes:
        probe: Entropies (nats) of the greedy probe so far.
        run: The run once it has started.
    """

    def __init__(self) -> None:
        self.probe: list[float] = []
        self.run: Run | None = None
        self._ended: RunEnded | None = None  # while probing

    @property
    def ended(self) -> RunEnded | None:
        """The last event; None while there is more to come."""
        return self._ended if self.run is None else self.run.ended

    def apply(self, event: Event) -> None:
        """Fold one more event.

        Raises:
            RecordError: The event cannot follow what came before.
        """
        if self.run is not None:
            self.run.apply(event)
        elif self._ended is not None:
            raise RecordError(f"the run goes on with {type(event).__name__} after its end")
        elif isinstance(event, RunStarted):
            self.run = Run(event, self.probe)
        elif isinstance(event, Probed):
            self.probe.append(event.entropy)
        elif isinstance(event, RunEnded):
            self._ended = event
        else:
            raise RecordError(
                f"the run begins with {type(event).__name__}; it must begin with RunStarted"
            )

    def started_run(self) -> Run:
        """The run.

        Raises:
            MemoryLimitError: It failed before it started.
            RecordError: It has not started.
        """
        if self.run is not None:
            return self.run
        _raise_if_failed(self._ended)
        raise RecordError("the run has not started; there is nothing to show")


def fold_prefix(events: Iterable[Event]) -> RunFold:
    """The state after these events, which need not reach the start of the run."""
    state = RunFold()
    for event in events:
        state.apply(event)
    return state


def fold(events: Iterable[Event]) -> Run:
    """The run after these events; raises like `RunFold.started_run`."""
    return fold_prefix(events).started_run()


def _raise_if_failed(ended: RunEnded | None) -> None:
    if ended is not None and ended.reason == "failed":
        raise MemoryLimitError(ended.message)
