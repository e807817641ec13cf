"""Which BMC measurements one browser tab looks at: its own, or those that come with the project."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

import streamlit as st

from app import session
from app.live import LiveReport
from eab.bmc.results import Experiment, Report, load

BUNDLED: Final = Path(__file__).resolve().parent.parent / "assets" / "bmc"
_LIVE: Final = "measurements"


@dataclass(frozen=True)
class Shown:
    """A report to draw, and whether it was made here (else it came with the project)."""

    report: Report
    live: LiveReport | None = None

    @property
    def key(self) -> str:
        """Names it for the charts."""
        return "bundled" if self.live is None else self.live.id

    @property
    def held_still(self) -> AbstractContextManager[object]:
        """While this is open the report does not change."""
        return self.live.lock if self.live is not None else nullcontext()


@lru_cache(maxsize=8)
def bundled(experiment: Experiment) -> Report:
    """The recorded report that comes with the project."""
    return load(BUNDLED / f"{experiment}.json")


def last() -> LiveReport | None:
    """What this tab began last, whatever became of it."""
    return next(reversed(_all().values()), None)


def going() -> LiveReport | None:
    """The measurement that is being made in this tab, if there is one."""
    return next((one for one in _all().values() if one.active), None)


def shown(experiment: Experiment) -> Shown:
    """What to draw: a measurement that is not complete leaves the one before it on the screen."""
    complete = cast("dict[Experiment, LiveReport]", st.session_state.setdefault(f"{_LIVE}_complete", {}))
    own = _all().get(experiment)
    if own is not None and own.state.complete:
        complete[experiment] = own
    return (
        Shown(complete[experiment].state, complete[experiment])
        if experiment in complete
        else Shown(bundled(experiment))
    )


def start(experiment: Experiment, rows: int, model_name: str) -> None:
    """Begin a measurement; one of this tab that is still going is stopped."""
    stop()
    _all().pop(experiment, None)  # the last one begun is the last one in the books
    _all()[experiment] = session.worker().measure(experiment, rows, model_name, session.owner())


def stop() -> None:
    """Stop this tab's measurement, if one is going."""
    one = going()
    if one is not None:
        one.stop()


def _all() -> dict[Experiment, LiveReport]:
    return cast("dict[Experiment, LiveReport]", st.session_state.setdefault(_LIVE, {}))
