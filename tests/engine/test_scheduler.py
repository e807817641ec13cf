"""A run that is served with others has the events that it has alone, whatever happens to them: also
when it pauses and loses its rows.
"""

import gc
import weakref
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, get_args

import pytest
import torch
from equality import untimed
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs
from policies import EVERY
from served_together import (
    BASE,
    FAMILIES,
    alone,
    assert_same_events,
    assert_served_as_alone,
    chain,
    chain_request,
    expected_of,
    mib_of_rows,
    serve_all,
)

from eab.config import CacheName
from eab.engine.fairness import FirstComeFirstServed, NewcomersFirst
from eab.engine.handle import Handle
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.errors import ConfigError, ModelError, PromptError
from eab.lessons.checks.policy import TableModel, random_table
from eab.run.events import (
    Event,
    Forked,
    KvMeasured,
    RunEnded,
    RunStarted,
    Speculated,
    TokensAppended,
)


@pytest.mark.parametrize(
    ("family", "token_budget"), [*((family, 40) for family in FAMILIES), ("llama", 512)]
)
def test_every_kind_of_run_has_the_same_events_alone_and_in_a_batch(twins, family, token_budget):
    """The smaller budget splits prompts into chunks, and leaves runs out of passes."""
    expected = expected_of(twins, family)
    scheduler = Scheduler(twins(family).ours, token_budget=token_budget)
    assert_served_as_alone(scheduler, twins, expected)
    kinds = {type(event) for events in expected for event in events}
    assert {Forked, Speculated, RunEnded} <= kinds


class Served(RuleBasedStateMachine):
    """Submits, serves and stops runs at random; each has the events that it has alone."""

    kv_rows = 10**6

    def __init__(self) -> None:
        super().__init__()
        self.model = chain()
        self.scheduler = Scheduler(
            self.model, max_running=4, token_budget=24, kv_limit_mib=mib_of_rows(self.kv_rows)
        )
        self.known: list[tuple[Handle, list[Event], list[Event]]] = []

    @rule(
        prompt=st.integers(1, 50),
        seed=st.integers(0, 3),
        owner=st.sampled_from("abc"),
        paths=st.integers(1, 20),
        policy=st.sampled_from(EVERY),
        cache=st.sampled_from(get_args(CacheName)),
        drafter=st.sampled_from(["none", "prompt-lookup"]),
    )
    def submit(self, prompt: int, seed: int, owner: str, paths: int, **settings: Any) -> None:
        request = chain_request(
            " ".join(str(index % 11) for index in range(prompt)),
            seed=seed,
            max_paths=paths,
            draft_length=2,
            **settings,
        )
        handle = self.scheduler.submit(request, owner=owner)
        self.known.append((handle, [], alone(chain(), request)))

    @precondition(lambda self: self.scheduler.busy)
    @rule()
    def step(self) -> None:
        self.scheduler.step()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        handle, events, _ = data.draw(st.sampled_from(self.known))
        if not handle.ended:
            handle.stop()
            self.scheduler.step()
            assert handle.ended
            events += handle.new_events()
            assert isinstance(events[-1], RunEnded)
            assert events[-1].reason == "stopped"
            events[-1:] = []

    @invariant()
    def events_are_those_of_each_run_alone(self) -> None:
        for handle, events, expected in self.known:
            events += handle.new_events()
            found = untimed(events)
            assert found == untimed(expected)[: len(found)]  # exact: a table model does not round
            assert handle.error is None
        assert len(self.scheduler.running) <= 4

    def teardown(self) -> None:
        while self.scheduler.busy:
            self.scheduler.step()
        self.events_are_those_of_each_run_alone()
        assert all(handle.ended for handle, _, _ in self.known)


class ServedInLittleMemory(Served):
    """The same with hardly more memory than one run takes: runs pause and lose their rows."""

    kv_rows = 100


@pytest.mark.parametrize(
    ("machine", "examples"),
    [
        (Served, 4),
        (ServedInLittleMemory, 4),
        pytest.param(Served, 12, marks=pytest.mark.slow),
        pytest.param(ServedInLittleMemory, 12, marks=pytest.mark.slow),
    ],
)
def test_runs_that_come_and_go_have_the_same_events_as_alone(machine, examples):
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=30)
    )


def test_a_run_that_cannot_start_reports_why_and_the_others_continue():
    scheduler = Scheduler(chain())
    empty = scheduler.submit(Request(" ", BASE))
    no_draft = scheduler.submit(chain_request(drafter="model"))
    good = scheduler.submit(chain_request())
    assert_same_events(list(good), alone(chain(), chain_request()))
    assert isinstance(empty.error, PromptError)
    assert isinstance(no_draft.error, ConfigError)
    with pytest.raises(PromptError, match="the prompt is empty"):
        list(empty)


class Faulty(TableModel):
    """A model that fails in passes with the run whose cache is `culprit`.

    `how` = "raise" fails after K and V were stored, "memory" runs out of memory, "logits" gives
    NaN, and "shared" fails only passes of several runs, as when memory runs out.
    """

    def __init__(self, how: str, after: int) -> None:
        super().__init__(chain().table, stop_ids=[*chain().stop_ids])
        self.how, self.after, self.culprit = how, after, None

    def forward(self, batches):
        logits = super().forward(batches)
        parts = list(logits.split([len(batch.logits_indices) for batch in batches]))
        broken = [batch.cache is self.culprit for batch in batches]
        self.after -= 1
        if self.after >= 0:
            return logits
        if (self.how == "memory" and any(broken)) or (self.how == "shared" and len(batches) > 1):
            raise torch.OutOfMemoryError("no memory")
        if self.how == "raise" and any(broken):
            raise RuntimeError("a kernel failed")
        if self.how == "logits" and any(broken):
            parts[broken.index(True)] *= float("nan")
        return torch.cat(parts)


FAULTS = {"raise": RuntimeError, "logits": ModelError, "memory": None, "shared": None}


@pytest.mark.parametrize(
    ("how", "cache"),
    [*zip([*FAULTS] * 2, cycle(get_args(CacheName)), strict=False), ("raise", "tree")],
)
def test_a_run_that_fails_ends_alone(how, cache):
    for after in (1, 5):
        model = Faulty(how, after)
        scheduler = Scheduler(model)
        requests = [
            chain_request(seed=seed, cache=cache, max_new_tokens=12, max_paths=4 + seed)
            for seed in range(3)
        ]
        handles = [scheduler.submit(request) for request in requests]
        scheduler.step()
        model.culprit = handles[1].generation.cache
        served = serve_all(scheduler, handles)
        for number, (request, events) in enumerate(zip(requests, served, strict=True)):
            expected = untimed(alone(chain(), request))
            if number == 1 and how != "shared":
                events = [event for event in untimed(events) if not isinstance(event, RunEnded)]
                assert len(events) < len(expected)
                expected = expected[: len(events)]
            assert_same_events(list(without_copies(events)), list(without_copies(expected)))
        failed = FAULTS[how]
        assert [handle.error for handle in handles][::2] == [None, None]
        assert (handles[1].error is None) == (failed is None)
        if failed is not None:
            assert isinstance(handles[1].error, failed)
        if how == "memory":
            assert served[1][-1].reason == "failed"


def without_copies(events: Sequence[Event]) -> Iterator[Event]:
    """Blank what a repeated pass counts twice: some caches copy K and V for every pass."""
    for event in events:
        if isinstance(event, KvMeasured):
            usage = structs.replace(event.usage, bytes_copied=0, allocations=0, peak_bytes=0)
            yield structs.replace(event, usage=usage)
        else:
            yield event


def test_runs_that_are_submitted_later_join_the_next_pass():
    scheduler = Scheduler(chain())
    assert scheduler.step() == []
    assert not scheduler.busy
    first = scheduler.submit(chain_request(seed=1))
    scheduler.step()
    second = scheduler.submit(chain_request(seed=2))
    assert set(scheduler.step()) == {first, second}
    assert any(isinstance(event, RunStarted) for event in second.new_events())


def test_an_ended_run_is_freed_without_garbage_collection():
    scheduler = Scheduler(chain())
    gc.disable()
    try:
        handle = scheduler.submit(chain_request())
        list(handle)
        held = weakref.ref(handle)
        del handle
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("family", "rows", "rule"),
    [
        ("llama", 40, FirstComeFirstServed()),
        ("gpt2", 40, NewcomersFirst()),
        ("opt", 90, FirstComeFirstServed()),
        ("mistral", 90, NewcomersFirst()),
    ],
)
def test_preempted_runs_have_the_same_events_as_alone(monkeypatch, twins, family, rows, rule):
    expected, model = expected_of(twins, family), twins(family).ours
    monkeypatch.setattr("eab.engine.handle.SLICE", 16)
    mib = rows * model.kv_shape.row_bytes / 2**20
    scheduler = Scheduler(model, token_budget=40, kv_limit_mib=mib, rule=rule)
    # All are submitted together, and none has ended when the next one starts.
    handles = assert_served_as_alone(scheduler, twins, expected)
    assert sum(handle.preemptions for handle in handles) > 1


def test_a_newcomer_starts_while_long_runs_hold_the_memory_and_all_runs_finish(monkeypatch):
    monkeypatch.setattr("eab.engine.handle.SLICE", 256)
    wide = {"max_paths": 30, "max_new_tokens": 30, "r": 1}
    requests = [chain_request(seed=seed, policy="independent", **wide) for seed in range(6)]
    model = TableModel(random_table(3, 12))
    # One run takes 2 + 30 * 29 rows.
    scheduler = Scheduler(model, kv_limit_mib=mib_of_rows(1700), rule=NewcomersFirst())
    handles = [
        scheduler.submit(request, owner=str(number)) for number, request in enumerate(requests)
    ]
    while not scheduler.paused or any(not handle.slices for handle in handles):
        scheduler.step()
    new = scheduler.submit(chain_request(), owner="new")
    for _ in range(3):
        scheduler.step()
    assert any(isinstance(event, TokensAppended) for event in new.new_events())
    assert new not in scheduler.paused
    while scheduler.busy:
        scheduler.step()
        assert scheduler.kv_held <= 1700 * model.kv_shape.row_bytes
        assert handles[0] not in scheduler.paused, "the oldest goes on"
    for handle, request in zip(handles, requests, strict=True):
        assert_same_events(handle.new_events(), alone(model, request))
    # At most once for each change of its own place, and once for each of another run's.
    assert max(handle.preemptions for handle in handles) <= 6 * max(one.slices for one in handles)


def test_a_newcomer_waits_while_other_newcomers_hold_the_memory():
    model = TableModel(random_table(3, 12))
    scheduler = Scheduler(model, kv_limit_mib=mib_of_rows(100), rule=NewcomersFirst())
    wide = chain_request(max_paths=12, max_new_tokens=12, policy="independent", r=1)
    handles = [scheduler.submit(wide, owner=str(number)) for number in range(3)]
    while not scheduler.paused:
        scheduler.step()
    new = scheduler.submit(wide, owner="new")
    scheduler.step()
    assert scheduler.waiting == [new]
    for handle in (*handles, new):
        assert_same_events(list(handle), alone(model, wide))
