"""The jobs of the laboratories, as a server runs them. Imports no torch."""

from collections.abc import Iterator

from eab.engine.job import Job, JobContext
from eab.labs.bmc.results import Experiment
from eab.labs.measurement import LabEvent, Report


def experiment_job(experiment: Experiment, rows: int, model_name: str) -> Job[Report]:
    """A BMC experiment; `rows` is the number of KV rows that each of its runs writes."""

    def begin(context: JobContext) -> Iterator[LabEvent]:
        from eab.labs.bmc.measure import measure

        return measure(experiment, context.model, rows)

    return Job(f"bmc {experiment}", model_name, Report(), begin)
