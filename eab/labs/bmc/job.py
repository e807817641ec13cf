"""The job that runs a BMC experiment."""

from collections.abc import Iterator

from eab.engine.job import Job, JobContext
from eab.labs.bmc.results import Experiment, ExperimentReport, ReportEvent


def experiment_job(experiment: Experiment, rows: int, model_name: str) -> Job[ExperimentReport]:
    """An experiment; `rows` is the number of KV rows that each of its runs writes."""

    def begin(context: JobContext) -> Iterator[ReportEvent]:
        from eab.labs.bmc.measure import measure

        return measure(experiment, context.model, rows)

    return Job(f"bmc {experiment}", model_name, ExperimentReport(), begin)
