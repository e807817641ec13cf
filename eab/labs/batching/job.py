"""The job that serves the same requests in every way."""

from collections.abc import Iterator

from eab.engine.job import Job, JobContext
from eab.engine.request import Request
from eab.labs.batching.results import BatchingComparison, BatchingEvent, Workload


def serving_job(workload: Workload, model_name: str) -> Job[BatchingComparison]:
    """The job that serves these requests in every way."""

    def begin(context: JobContext) -> Iterator[BatchingEvent]:
        from eab.labs.batching.measure import compare_ways
        from eab.models.machine import describe_machine

        return compare_ways(context.model, workload, describe_machine(context.model.card.device))

    requests = tuple(Request(asked.prompt, workload.config(asked)) for asked in workload.requests)
    return Job("serving", model_name, BatchingComparison(), begin, requests)
