"""Measures whole runs: one request under several settings that change time and bytes, but not the
tokens; and the same requests served in three ways, which differ only in when they are submitted.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from eab.analysis.schedule import ScheduledPass, ScheduleRecorder
from eab.engine.caches.prefix_cache import prefix_cache
from eab.engine.handle import Handle
from eab.engine.loop import event_stream
from eab.engine.models.base import LanguageModel
from eab.engine.models.machine import describe_machine
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.labs.batching import WAYS, ServingRequest, Way, Workload, pass_rows, request_name
from eab.labs.measurement import Counter, LabBegan, LabEvent, OfRun, Row
from eab.labs.variants import PROMPT_REUSED, REPEATS, Variants, possible, repeat_rows
from eab.run import RunFold
from eab.run.events import Event, Pause, RunEnded, TokensAppended


def run_variants(
    model: LanguageModel,
    request: Request,
    lab: str,
    variants: Variants,
    draft: LanguageModel | None = None,
    repeats: int = REPEATS,
) -> Iterator[LabEvent]:
    """Run each variant that the model supports, then repeat them alternately to time them.

    The first runs are the warm-up. The repeats alternate, so that a slow moment of the machine
    affects all variants. A run that exceeds its memory limit ends with RunEnded("failed") and is
    not repeated. To stop, stop iterating.
    """
    chosen = possible(variants, model.card)
    given = tuple({"variant": name, "left_out": name not in chosen} for name in variants)
    machine = describe_machine(model.card.device)
    yield LabBegan(model.card.name, model.card.dtype, machine, lab, {}, given)
    # The first run with the tree finds an empty prefix cache and leaves its prompt there.
    prefixes = prefix_cache(model.kv_shape) if PROMPT_REUSED in chosen else None
    finished = set()
    counter = Counter((1 + repeats) * len(chosen))
    for number, name in counter.rounds(repeats, chosen):
        if number and name not in finished:
            continue
        asked = replace(request, config=replace(request.config, **chosen[name]))
        shared = name == PROMPT_REUSED or (name == "tree" and not number)
        words = f"repeat {number} of {repeats}: {name}" if number else f"first run: {name}"
        fold = RunFold()
        for event in event_stream(model, asked, draft, prefixes=prefixes if shared else None):
            fold.apply(event)
            if not number:
                yield OfRun(name, event)
            if isinstance(event, Pause):
                yield counter.at(words, _share_of_steps(fold, asked))
        if fold.run is not None and fold.ended is not None and fold.ended.complete:
            finished.add(name)
            yield from repeat_rows(name, number, fold.run) if number else ()
    yield RunEnded(0, "finished")


def _share_of_steps(fold: RunFold, asked: Request) -> float:
    steps = len(fold.run.steps) if fold.run is not None else 0
    return min(1.0, steps / asked.config.max_new_tokens)


PAUSE_SECONDS: Final = 0.2  # approximate time between two pauses
WARM_UP_TOKENS: Final = 2
_Tokens = dict[int, list[int]]  # by request number


def compare_ways(model: LanguageModel, workload: Workload, machine: str) -> Iterator[LabEvent]:
    """Serve the requests in each way, `workload.repeats` times.

    Repeats of the ways alternate, and each round starts with a different way, so that a slow moment
    of the machine affects all of them. To stop, stop iterating.
    """
    about = {"slots": workload.slots, "repeats": workload.repeats}
    about |= {"max_paths": workload.max_paths, "seed": workload.seed}
    given = tuple(asked._asdict() for asked in workload.requests)
    yield LabBegan(model.card.name, model.card.dtype, machine, "batching", {**about}, given)
    _warm_up(model, workload)
    first: _Tokens = {}
    passes: dict[Way, list[ScheduledPass]] = {}  # of the first repeat
    counter = Counter(workload.repeats * len(WAYS))
    for repeat, turn in product(range(workload.repeats), range(len(WAYS))):
        way = WAYS[(repeat + turn) % len(WAYS)]
        serving = _Serving(model, workload, way)
        for share in serving.steps():
            yield counter.at(f"{way}, repeat {repeat + 1} of {workload.repeats}", share)
        if not counter.done:
            first = serving.tokens
            yield from serving.kept
        yield from pass_rows(way, repeat, serving.passes, passes.get(way))
        passes.setdefault(way, serving.passes)
        differing = sum(serving.tokens[request] != first[request] for request in first)
        yield Row("servings", {"way": way, "repeat": repeat, "differing": differing})
        counter.done += 1
    yield RunEnded(0, "finished")


def _warm_up(model: LanguageModel, workload: Workload) -> None:
    """Run a few tokens, so that the first way is not timed with slow first passes."""
    asked = ServingRequest(workload.requests[0].prompt, WARM_UP_TOKENS)
    for _ in event_stream(model, Request(asked.prompt, workload.config(asked))):
        pass


class _Serving:
    """Serves all requests once; `kept` has all events of its runs."""

    def __init__(self, model: LanguageModel, workload: Workload, way: Way) -> None:
        self._workload, self._way = workload, way
        slots = 1 if way == "one by one" else workload.slots
        self._scheduler = Scheduler(model, max_running=slots)
        self._recorder = ScheduleRecorder()
        self.passes: list[ScheduledPass] = []
        self.tokens: _Tokens = {number: [] for number in range(len(workload.requests))}
        self.kept: list[OfRun] = []

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
        return self._scheduler.submit(request, owner=request_name(number))

    def _keep(self, number: int, events: list[Event]) -> None:
        self.kept += [OfRun(request_name(number), event) for event in events]
        appended = [event.tokens for event in events if isinstance(event, TokensAppended)]
        self.tokens[number] += [new.token for tokens in appended for new in tokens]
