"""Runs that pause and lose their rows have the same events as alone."""

import pytest
from served_together import (
    alone,
    assert_same_events,
    assert_served_as_alone,
    chain_request,
    expected_of,
    mib_of_rows,
)

from eab.engine.fairness import FirstComeFirstServed, NewcomersFirst
from eab.engine.scheduler import Scheduler
from eab.lessons.checks.policy import TableModel, random_table
from eab.run.events import TokensAppended


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


def test_when_memory_runs_short_the_youngest_run_pauses_and_then_loses_its_rows():
    requests = [
        chain_request(seed=seed, max_paths=8, max_new_tokens=40, r=1, policy="independent")
        for seed in range(3)
    ]
    model = TableModel(random_table(3, 12))
    scheduler = Scheduler(model, kv_limit_mib=mib_of_rows(400))  # a run takes 2 + 8 * 39 rows
    handles = [scheduler.submit(request) for request in requests]
    paused, freed = [], []
    while scheduler.busy:
        scheduler.step()
        held = {handle: handle.kv_held for handle in scheduler.running}
        assert sum(held.values()) <= 400 * model.kv_shape.row_bytes
        for handle in scheduler.paused:
            (paused if held[handle] else freed).append(handle)
        going = len(scheduler.running) - len(scheduler.paused)
        assert scheduler.paused == scheduler.running[going:]
    assert handles[2] in paused
    assert handles[2] in freed
    assert handles[0] not in [*paused, *freed], "the oldest goes on"
    assert handles[0].preemptions == 0
    for handle, request in zip(handles, requests, strict=True):
        assert_same_events(handle.new_events(), alone(model, request))


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
