"""What a scheduler served in each forward pass: which requests waited, which slots were idle.

A slot is a place in the batch; a run holds it from its first pass to its last. The records are made
from the events of each pass and never become part of a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count, groupby
from typing import Literal, NamedTuple

from eab.run.events import (
    Event,
    KvMeasured,
    Probed,
    RowsAllocated,
    RunEnded,
    RunStarted,
    StepTimed,
    TokensAppended,
)

Work = Literal["prefill", "decode"]


class RunInPass(NamedTuple):
    """The part that one run had in a pass."""

    run: int
    slot: int
    prefill: int  # prompt tokens that went through the model
    decode: int  # other tokens that went through the model
    steps: int  # how many tokens were decided on each live path
    new_tokens: int  # tokens written, on all paths


class ScheduledPass(NamedTuple):
    """One shared forward pass, with the decisions of its runs."""

    seconds: float  # duration (measured)
    kv_bytes: int  # of all started runs, including those that ended in this pass (measured)
    served: tuple[RunInPass, ...]

    @property
    def tokens(self) -> int:
        """Tokens that went through the model."""
        return sum(served.prefill + served.decode for served in self.served)


class ScheduleRecorder:
    """Makes the record of each pass."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}  # all three by run
        self._row_bytes: dict[int, int] = {}
        self._kv_bytes: dict[int, int] = {}

    def record(self, seconds: float, events: Mapping[int, Sequence[Event]]) -> ScheduledPass:
        """The record of a pass, from the events of each run since the previous pass."""
        served = []
        for run, new in events.items():
            self._note_bytes(run, new)
            if any(isinstance(event, StepTimed | Probed) for event in new):
                served.append(_served(run, self._slot(run), new))
        record = ScheduledPass(seconds, sum(self._kv_bytes.values()), tuple(served))
        for run, new in events.items():
            if any(isinstance(event, RunEnded) for event in new):
                self.forget(run)
        return record

    def forget(self, run: int) -> None:
        """Free the slot of a run that ended."""
        for known in (self._slots, self._row_bytes, self._kv_bytes):
            known.pop(run, None)

    def _slot(self, run: int) -> int:
        if run not in self._slots:
            taken = set(self._slots.values())
            self._slots[run] = next(slot for slot in count() if slot not in taken)
        return self._slots[run]

    def _note_bytes(self, run: int, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case RunStarted():
                    self._row_bytes[run] = event.model.row_bytes
                case RowsAllocated():
                    self._kv_bytes[run] = event.growth.rows * self._row_bytes.get(run, 0)
                case KvMeasured():
                    self._kv_bytes[run] = event.usage.bytes_alone(self._row_bytes.get(run, 0))


def _served(run: int, slot: int, events: Sequence[Event]) -> RunInPass:
    """Count tokens as prefill up to and including the pass that decides step 0."""
    timed = [event for event in events if isinstance(event, StepTimed)]
    probed = sum(isinstance(event, Probed) for event in events)
    return RunInPass(
        run,
        slot,
        prefill=sum(event.tokens for event in timed if event.step == 0),
        decode=sum(event.tokens for event in timed if event.step > 0) + probed,
        steps=sum(isinstance(event, KvMeasured) for event in events),
        new_tokens=sum(len(event.tokens) for event in events if isinstance(event, TokensAppended)),
    )


class Segment(NamedTuple):
    """Consecutive passes of one run with the same kind of work."""

    run: int
    slot: int
    work: Work
    first: int
    last: int
    tokens: int  # tokens of the run in these passes


class Idle(NamedTuple):
    """Consecutive passes in which a slot served no run."""

    slot: int
    first: int
    last: int
    awaited: bool  # whether a run was waiting for its first pass


@dataclass(frozen=True)
class Schedule:
    """The passes that served some runs, all of which arrived before the first pass."""

    slots: int  # how many runs a pass can serve
    passes: tuple[ScheduledPass, ...]

    @cached_property
    def ends(self) -> list[float]:
        """When each pass ended: seconds of passes since the first one started."""
        return [*accumulate(record.seconds for record in self.passes)]

    @property
    def seconds(self) -> float:
        """Duration of all passes."""
        return self.ends[-1] if self.ends else 0.0

    def start(self, number: int) -> float:
        """When this pass started."""
        return self.ends[number] - self.passes[number].seconds

    @cached_property
    def by_run(self) -> dict[int, list[tuple[int, RunInPass]]]:
        """For each run, in the order of their starts, its passes and its part in each."""
        parts: dict[int, list[tuple[int, RunInPass]]] = {}
        for number, record in enumerate(self.passes):
            for part in record.served:
                parts.setdefault(part.run, []).append((number, part))
        return parts

    @property
    def new_tokens(self) -> int:
        """Tokens written by all runs."""
        return sum(part.new_tokens for record in self.passes for part in record.served)

    @property
    def peak_kv_bytes(self) -> int:
        """The most KV bytes held in any pass."""
        return max((record.kv_bytes for record in self.passes), default=0)

    @property
    def idle_share(self) -> float:
        """Share of the slot-steps (slots times passes) without a run."""
        all_of_them = self.slots * len(self.passes)
        busy = sum(len(record.served) for record in self.passes)
        return 1 - busy / all_of_them if all_of_them else 0.0

    @property
    def awaited_idle_share(self) -> float:
        """Share of the slot-steps without a run while another run was waiting to start."""
        all_of_them = self.slots * len(self.passes)
        idle = sum(gap.last - gap.first + 1 for gap in self.idle() if gap.awaited)
        return idle / all_of_them if all_of_them else 0.0

    def first_token_passes(self) -> dict[int, int]:
        """The pass in which each run got its first token."""
        passes = {}
        for run, parts in self.by_run.items():
            number = next((number for number, part in parts if part.steps), None)
            if number is not None:
                passes[run] = number
        return passes

    def first_token_seconds(self) -> dict[int, float]:
        """The time to first token of each run, including its wait."""
        return {run: self.ends[number] for run, number in self.first_token_passes().items()}

    def output_token_seconds(self) -> dict[int, float]:
        """The mean time between steps, for each run with at least two."""
        first, seconds = self.first_token_seconds(), {}
        for run, parts in self.by_run.items():
            steps = sum(part.steps for _, part in parts)
            if steps > 1:
                seconds[run] = (self.ends[parts[-1][0]] - first[run]) / (steps - 1)
        return seconds

    def segments(self) -> list[Segment]:
        """The passes of every run; consecutive passes with the same work are joined."""
        return [segment for run, parts in self.by_run.items() for segment in _joined(run, parts)]

    def idle(self) -> list[Idle]:
        """The idle periods of all slots."""
        last_begun = max((parts[0][0] for parts in self.by_run.values()), default=-1)
        return [
            Idle(slot, first, last, awaited)
            for slot in range(self.slots)
            for awaited, first, last in self._idle_passes(slot, last_begun)
        ]

    def _idle_passes(self, slot: int, last_begun: int) -> Iterator[tuple[bool, int, int]]:
        idle = [
            number
            for number, record in enumerate(self.passes)
            if all(part.slot != slot for part in record.served)
        ]
        for awaited, numbers in groupby(idle, key=lambda number: number < last_begun):
            for first, last in _consecutive([*numbers]):
                yield awaited, first, last


def _joined(run: int, parts: Sequence[tuple[int, RunInPass]]) -> Iterator[Segment]:
    for is_prefill, group in groupby(parts, key=lambda pair: pair[1].prefill > 0):
        tokens = {number: part.prefill + part.decode for number, part in group}
        work: Work = "prefill" if is_prefill else "decode"
        for first, last in _consecutive([*tokens]):
            total = sum(tokens[number] for number in range(first, last + 1))
            yield Segment(run, parts[0][1].slot, work, first, last, total)


def _consecutive(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[1, 2, 5] -> (1, 2), (5, 5)."""
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        yield members[0], members[-1]
