"""Runs that pause and lose their rows have the events that they have alone."""

import pytest
from served import (
    FAMILIES,
    REQUESTS,
    alone,
    assert_same_events,
    chain_request,
    draft_for,
    mib_of_rows,
    serve_all,
)
from table_model import TableModel, random_table

from eab.engine.scheduler import Scheduler


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [40, 90])
def test_preempted_runs_have_the_same_events_as_alone(twins, family, rows):
    model = twins(family).ours
    scheduler = Scheduler(
        model, token_budget=40, kv_limit_mib=rows * model.kv_shape.row_bytes / 2**20
    )
    # All at once, and none has ended when the next begins.
    handles = [
        scheduler.submit(request, owner=name, draft=draft_for(request, twins))
        for name, request in REQUESTS.items()
    ]
    served = serve_all(scheduler, handles)
    for request, events in zip(REQUESTS.values(), served, strict=True):
        assert_same_events(events, alone(model, request, draft_for(request, twins)))
    assert sum(handle.preemptions for handle in handles) > 1


def test_when_memory_runs_short_the_youngest_pauses_then_loses_its_rows():
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
        assert (
            scheduler.paused == scheduler.running[len(scheduler.running) - len(scheduler.paused) :]
        )
    assert handles[2] in paused
    assert handles[2] in freed
    assert handles[0] not in [*paused, *freed], "the oldest goes on"
    assert handles[0].preemptions == 0
    for handle, request in zip(handles, requests, strict=True):
        assert_same_events(handle.new_events(), alone(model, request))
