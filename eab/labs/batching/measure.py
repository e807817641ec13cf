"""Serves the same requests in three ways, which differ only in when requests are submitted."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from eab.analysis.schedule import ScheduledPass, ScheduleRecorder
from eab.engine.handle import Handle
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.events import Event, Progressed, RunEnded, TokensAppended
from eab.labs.batching.results import (
    WAYS,
    BatchingEvent,
    RequestEvent,
    ServingBegan,
    ServingRequest,
    Way,
    WayServed,
    Workload,
)
from eab.models.base import LanguageModel

PAUSE_SECONDS: Final = 0.2  # approximate time between two pauses
WARM_UP_TOKENS: Final = 2
_Tokens = dict[int, list[int]]  # by request number


def compare_ways(model: LanguageModel, workload: Workload, machine: str) -> Iterator[BatchingEvent]:
    """Serve the requests in each way, `workload.repeats` times.

    Repeats of the ways alternate, and each round starts with a different way, so that a slow moment
    of the machine affects all of them. To stop, stop iterating.
    """
    yield ServingBegan(model.card.name, model.card.dtype, machine, workload)
    _warm_up(model, workload)
    first: _Tokens = {}
    rounds = [
        (number, WAYS[(number + turn) % len(WAYS)])
        for number in range(workload.repeats)
        for turn in range(len(WAYS))
    ]
    for done, (number, way) in enumerate(rounds):
        serving = _Serving(model, workload, way)
        words = f"{way}, repeat {number + 1} of {workload.repeats}"
        for share in serving.steps():
            yield Progressed((done + share) / len(rounds), words)
        if not done:
            first = serving.tokens
            yield from serving.kept
        differing = sum(serving.tokens[request] != first[request] for request in first)
        yield WayServed(way, tuple(serving.passes), differing)
    yield RunEnded(0, "finished")


def _warm_up(model: LanguageModel, workload: Workload) -> None:
    """Run a few tokens, so that the first way is not timed with slow first passes."""
    asked = ServingRequest(workload.requests[0].prompt, WARM_UP_TOKENS)
    for _ in event_stream(model, Request(asked.prompt, workload.config(asked))):
        pass


class _Serving:
    """Serves all requests once; `kept` has all events with their request numbers."""

    def __init__(self, model: LanguageModel, workload: Workload, way: Way) -> None:
        self._workload, self._way = workload, way
        slots = 1 if way == "one by one" else workload.slots
        self._scheduler = Scheduler(model, max_running=slots)
        self._recorder = ScheduleRecorder()
        self.passes: list[ScheduledPass] = []
        self.tokens: _Tokens = {number: [] for number in range(len(workload.requests))}
        self.kept: list[RequestEvent] = []

    def steps(self) -> Iterator[float]:
        """Serve all groups; regularly yield the share of the new tokens that has been written."""
        asked = sum(request.new_tokens for request in self._workload.requests)
        done, paused = 0, time.perf_counter()
        try:
            for group in self._workload.groups(self._way):
                for _ in self._serve(group):
                    if time.perf_counter() - paused > PAUSE_SECONDS:
                        under_way = sum(
                            min(
                                len(self.tokens[number]), self._workload.requests[number].new_tokens
                            )
                            for number in group
                        )
                        yield min(1.0, (done + under_way) / asked)
                        paused = time.perf_counter()
                done += sum(self._workload.requests[number].new_tokens for number in group)
        finally:
            self._scheduler.close()  # frees memory now, even if the caller stops iterating

    def _serve(self, group: Sequence[int]) -> Iterator[None]:
        handles = {number: self._submit(number) for number in group}
        while self._scheduler.busy:
            start = time.perf_counter()
            self._scheduler.step()
            seconds = time.perf_counter() - start
            events = {number: handle.new_events() for number, handle in handles.items()}
            self.passes.append(self._recorder.record(seconds, events))
            for number, handle in handles.items():
                if handle.error is not None:
                    raise handle.error
                self._keep(number, events[number])
            yield

    def _submit(self, number: int) -> Handle:
        asked = self._workload.requests[number]
        request = Request(asked.prompt, self._workload.config(asked))
        return self._scheduler.submit(request, owner=f"request {number}")

    def _keep(self, number: int, events: list[Event]) -> None:
        self.kept += [RequestEvent(number, event) for event in events]
        appended = [event.tokens for event in events if isinstance(event, TokensAppended)]
        self.tokens[number] += [new.token for tokens in appended for new in tokens]
