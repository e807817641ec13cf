"""The newest shared passes of this server, visible to everyone: run numbers, no prompts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from app.server.live_run import LiveRun
from eab.analysis.schedule import ScheduledPass, ScheduleRecorder
from eab.events import Event

KEPT_PASSES: Final = 200


@dataclass(frozen=True, slots=True)
class LoggedPass:
    """A shared forward pass."""

    ended_at: float  # when it ended, on the clock of `time.monotonic`
    waiting: int
    record: ScheduledPass
    owners: Mapping[int, str]  # owner of each run, by run number


@dataclass(frozen=True, slots=True)
class ServingNow:
    """The state of serving at one moment."""

    passes: tuple[LoggedPass, ...]  # the newest ones, oldest first
    running: int  # in the batch
    waiting: int  # for a slot
    taking_turns: int  # sweeps and measurements that wait or take turns
    at: float  # on the clock of `time.monotonic`

    @property
    def busy(self) -> bool:
        """Whether any run is being served or waiting."""
        return bool(self.running or self.waiting)


class ServingLog:
    """The newest passes, written by one thread."""

    def __init__(self) -> None:
        # Oldest first. Replaced, never changed in place: other threads may read it at any time.
        self.passes: tuple[LoggedPass, ...] = ()
        self._recorder, self._next = ScheduleRecorder(), count(1)
        self._numbers: dict[str, int] = {}  # by id

    def note(self, seconds: float, waiting: int, events: Mapping[LiveRun, Sequence[Event]]) -> None:
        """Add a pass."""
        numbers = {self._number(live): live for live in events}
        record = self._recorder.record(
            seconds, {number: events[live] for number, live in numbers.items()}
        )
        if record.served:
            owners = {row.run: numbers[row.run].owner for row in record.served}
            new = LoggedPass(time.monotonic(), waiting, record, owners)
            self.passes = (*self.passes[1 - KEPT_PASSES :], new)

    def forget(self, live: LiveRun) -> None:
        """Free the slot of a run that ended."""
        number = self._numbers.pop(live.id, None)
        if number is not None:
            self._recorder.forget(number)

    def _number(self, live: LiveRun) -> int:
        if live.id not in self._numbers:
            self._numbers[live.id] = next(self._next)
        return self._numbers[live.id]
