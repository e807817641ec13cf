"""The BMC measurements that one browser tab shows: its own, or those that come with the project."""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Final

from app.server.job import Job, JobContext
from app.server.live_run import LiveTask
from app.state.slot import Slot
from eab.assets import ASSETS
from eab.labs.bmc.results import EXPERIMENTS, Experiment, Report, ReportEvent, load

BUNDLED: Final = ASSETS / "bmc"


@lru_cache(maxsize=8)
def bundled(experiment: Experiment) -> Report:
    """The recorded report that comes with the project."""
    return load(BUNDLED / f"{experiment}.json")


def _is_of(experiment: Experiment, live: LiveTask[Report]) -> bool:
    return live.job.kind == f"bmc {experiment}"


def _has_ended_with_points(live: LiveTask[Report]) -> bool:
    return not live.active and live.state.presentable


SLOTS: Final[dict[Experiment, Slot[Report]]] = {
    name: Slot(
        f"bmc_{name}",
        Report,
        partial(bundled, name),
        drawable=_has_ended_with_points,
        accepts=partial(_is_of, name),
    )
    for name in EXPERIMENTS
}


def interrupted() -> dict[Experiment, LiveTask[Report]]:
    """Measurements that ended early and were not repeated; the page displays those before them."""
    return {
        name: live
        for name, slot in SLOTS.items()
        if (live := slot.current().live) is not None
        and not live.active
        and slot.displayed().live is not live
    }


def active() -> LiveTask[Report] | None:
    """The measurement that is being made in this tab, if there is one."""
    current = (slot.current() for slot in SLOTS.values())
    return next((entry.live for entry in current if entry.active), None)


def measurement_job(experiment: Experiment, rows: int, model_name: str) -> Job[Report]:
    """A measurement; `rows` is how many KV rows each of its runs writes."""

    def begin(context: JobContext) -> Iterator[ReportEvent]:
        from eab.labs.bmc.measure import measure

        return measure(experiment, context.model, rows)

    return Job(f"bmc {experiment}", model_name, Report(), begin)


def start(experiment: Experiment, rows: int, model_name: str) -> None:
    """Start a measurement, see `measurement_job`; one of this tab that is active is stopped."""
    stop()
    SLOTS[experiment].start(measurement_job(experiment, rows, model_name))


def stop() -> None:
    """Stop the measurement of this tab, if one is active."""
    live = active()
    if live is not None:
        live.stop()
