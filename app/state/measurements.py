"""The BMC measurements of one browser tab: its own, or those that come with the project."""

from functools import lru_cache, partial
from typing import Final

from app.server.live_run import LiveReport
from app.state import process
from app.state.slot import Slot
from eab.assets import ASSETS
from eab.bmc.results import EXPERIMENTS, Experiment, Report, load

BUNDLED: Final = ASSETS / "bmc"


@lru_cache(maxsize=8)
def bundled(experiment: Experiment) -> Report:
    """The recorded report that comes with the project."""
    return load(BUNDLED / f"{experiment}.json")


def _is_of(experiment: Experiment, live: LiveReport) -> bool:
    return live.prompt == experiment


PLACES: Final[dict[Experiment, Slot[Report]]] = {
    name: Slot(f"bmc_{name}", partial(bundled, name), partial(_is_of, name)) for name in EXPERIMENTS
}


def broken_off() -> dict[Experiment, LiveReport]:
    """What ended before it was complete, and was not begun again; the picture before it is on the
    screen.
    """
    every = {name: place.shown() for name, place in PLACES.items()}
    return {
        name: shown.live
        for name, shown in every.items()
        if shown.live is not None and not shown.active and shown.picture is not shown
    }


def going() -> LiveReport | None:
    """The measurement that is being made in this tab, if there is one."""
    every = (place.shown() for place in PLACES.values())
    return next((shown.live for shown in every if shown.active), None)


def start(experiment: Experiment, rows: int, model_name: str) -> None:
    """Begin a measurement; one of this tab that is still going is stopped."""
    stop()
    PLACES[experiment].show(process.worker().measure(experiment, rows, model_name, process.owner()))


def stop() -> None:
    """Stop this tab's measurement, if one is going."""
    one = going()
    if one is not None:
        one.stop()
