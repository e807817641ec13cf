"""The comparison of ways to serve that one browser tab shows: its own, or the recorded one."""

from collections.abc import Iterator
from typing import Final

from app.server.job import Job, JobContext
from app.state.slot import Slot
from eab.engine.request import Request
from eab.labs.batching.results import BatchingComparison, BatchingEvent, Workload
from eab.lessons import bundled_runs

COMPARISON: Final = Slot(
    "batching",
    BatchingComparison,
    bundled_runs.batching,
    drawable=lambda live: not live.active and live.state.complete,
)


def serving_job(workload: Workload, model_name: str) -> Job[BatchingComparison]:
    """The same requests, served in every way."""

    def begin(context: JobContext) -> Iterator[BatchingEvent]:
        from eab.labs.batching.measure import compare_ways
        from eab.models.machine import describe_machine

        return compare_ways(context.model, workload, describe_machine(context.model.card.device))

    requests = tuple(Request(asked.prompt, workload.config(asked)) for asked in workload.requests)
    return Job("serving", model_name, BatchingComparison(), begin, requests)
