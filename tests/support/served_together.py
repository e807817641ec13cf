"""Requests that are served together, and comparisons of their events with runs served alone."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import pytest
from equality import EXACT, PROMPT, untimed
from msgspec import Struct, structs

from eab.config import BranchingConfig, CacheName
from eab.engine.handle import Handle
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import fold
from eab.run.events import Event, Reweighted, RunStarted

FAMILIES = ["llama", "qwen2", "gpt2", "gpt_neox", "opt", "mistral"]
LONG = " ".join(f"w{(5 * index) % 60 + 2}" for index in range(60))
BASE = BranchingConfig(max_new_tokens=10, entropy_threshold=1.5, max_paths=6)

REQUESTS = {
    "fair": Request(PROMPT, BASE),
    "another seed": Request("w7 w8", replace(BASE, seed=5, max_paths=9)),
    "long prompt": Request(LONG, replace(BASE, max_new_tokens=6)),
    "original": Request(PROMPT, replace(BASE, policy="original", top_k=20, seed=2)),
    "arithmetic": Request(PROMPT, replace(BASE, policy="arithmetic", seed=4)),
    "stochastic beam": Request(PROMPT, replace(BASE, policy="stochastic-beam", seed=4)),
    "best first": Request(PROMPT, replace(BASE, policy="best-first", paths_per_pass=2)),
    "independent": Request("w40 w41 w42", replace(BASE, policy="independent", temperature=0.7)),
    "one token": Request("w9", replace(BASE, max_new_tokens=1)),
    "rank": Request(PROMPT, replace(BASE, entropy_threshold=3.0, threshold_unit="rank")),
    "nucleus": Request(PROMPT, replace(BASE, top_p=0.9, temperature=1.3, r=3)),
    "padded": Request("w3 w4 w5", replace(BASE, attention="padded", r=4)),
    "lookup": Request(
        "w5 w9 w33 w5 w9", replace(BASE, drafter="prompt-lookup", draft_length=3, top_k=2)
    ),
    "draft model": Request(
        PROMPT, replace(BASE, drafter="model", draft_length=2, entropy_threshold=4.0)
    ),
} | {
    name: Request(PROMPT, replace(BASE, cache=name, seed=3))
    for name in get_args(CacheName)
    if name != "tree"
}


def same(found: Any, expected: Any) -> bool:
    """Whether two values are equal, up to the rounding of sums in another order."""
    if isinstance(found, float) and isinstance(expected, float):
        return found == expected or abs(found - expected) <= EXACT
    if type(found) is not type(expected):
        return False
    if isinstance(found, Struct):
        return all(map(same, structs.astuple(found), structs.astuple(expected)))
    if isinstance(found, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


def assert_same_events(found: Sequence[Event], expected: Sequence[Event]) -> None:
    """Check for the same events. Reweighted events may be due to rounding; weights are compared."""
    for one, other in zip(unweighted(found), unweighted(expected), strict=True):
        assert same(one, other), (one, other)
    if any(isinstance(event, RunStarted) for event in found):
        weights = [[path.weight for path in fold(events).paths] for events in (found, expected)]
        assert weights[0] == pytest.approx(weights[1], abs=EXACT)


def unweighted(events: Sequence[Event]) -> list[Event]:
    return [event for event in untimed(events) if not isinstance(event, Reweighted)]


def draft_for(request: Request, twins: Any) -> Any:
    return twins("llama", 1).ours if request.config.drafter == "model" else None


def alone(model: Any, request: Request, draft: Any = None) -> list[Event]:
    return list(event_stream(model, request, draft))


@cache
def expected_of(twins: Any, family: str) -> list[list[Event]]:
    """The events of each of the REQUESTS when it is served alone."""
    return [alone(twins(family).ours, one, draft_for(one, twins)) for one in REQUESTS.values()]


def assert_served_as_alone(
    scheduler: Scheduler, twins: Any, expected: list[list[Event]]
) -> list[Handle]:
    """Check that all REQUESTS, served together, have the same events as when served alone."""
    handles = [
        scheduler.submit(request, owner=name, draft=draft_for(request, twins))
        for name, request in REQUESTS.items()
    ]
    for events, own in zip(serve_all(scheduler, handles), expected, strict=True):
        assert_same_events(events, own)
    return handles


def serve_all(scheduler: Scheduler, handles: Sequence[Handle]) -> list[list[Event]]:
    events: list[list[Event]] = [[] for _ in handles]
    while scheduler.busy:
        scheduler.step()
        for own, handle in zip(events, handles, strict=True):
            own += handle.new_events()
    return events


def mib_of_rows(rows: int) -> float:
    """The memory of these rows of a table model, in MiB."""
    return rows * chain().kv_shape.row_bytes / 2**20


def chain(size: int = 12) -> TableModel:
    return TableModel(random_table(3, size), stop_ids=[size - 1])


def chain_request(prompt: str = "0 1", **settings: Any) -> Request:
    return Request(prompt, replace(BASE, entropy_threshold=1.0, **settings))
