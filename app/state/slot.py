"""What one browser tab looks at where a page makes something beside what comes with the project:
its own or that.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar, cast

import streamlit as st

from app.server.live_run import Live
from app.state import polling, process, tab
from eab.analysis.sweep import Sweep
from eab.bmc.results import Report

_BUNDLED: Final = "bundled"
Made = TypeVar("Made", Sweep, Report)


@dataclass(frozen=True)
class Shown(Generic[Made]):
    """What was begun last, and what was on the screen before. `key` names it for the charts; live:
    None if bundled.
    """

    key: str
    state: Made
    live: Live[Made] | None = None
    before: "Shown[Made] | None" = None

    @property
    def picture(self) -> "Shown[Made]":
        """What to draw: what is not complete leaves the one before it on the screen."""
        complete = self.live is None or (not self.live.active and self.state.complete)
        return self if complete or self.before is None else self.before

    @property
    def active(self) -> bool:
        """Whether it is being made."""
        return self.live is not None and self.live.active

    @property
    def held_still(self) -> AbstractContextManager[object]:
        """While this is open it does not change."""
        return self.live.lock if self.live is not None else nullcontext()


@dataclass(frozen=True)
class Slot(Generic[Made]):
    """A place for one kind of thing. name: in the URL and the session. bundled: what to show before
    another is made.

    fits: whether what a URL names belongs here.
    """

    name: str
    bundled: Callable[[], Made]
    fits: Callable[[Live[Made]], bool]

    def shown(self) -> Shown[Made]:
        """What this tab shows: its own, the one named in the URL after a reload, or the bundled
        one.
        """
        if self._key not in st.session_state:
            bundled = Shown(_BUNDLED, self.bundled())
            live = process.worker().find(st.query_params.get(self.name, ""), type(bundled.state))
            st.session_state[self._key] = (
                _after(bundled, live) if live is not None and self.fits(live) else bundled
            )
        return cast(Shown[Made], st.session_state[self._key])

    def show(self, live: Live[Made]) -> None:
        """Show what has just been begun."""
        st.session_state[self._key] = _after(self.shown().picture, live)

    def stop(self) -> None:
        """Stop what is on the screen, if it is going."""
        live = self.shown().live
        if live is not None:
            live.stop()

    def watch(self, told: Callable[[Live[Any]], tuple[float, str]], active: bool) -> None:
        """Say how far it is until it ends, and in the URL which it is. told, active: see
        polling.watch.
        """
        self.note_in_url()
        polling.watch(lambda: self.shown().live, told, active)

    def note_in_url(self) -> None:
        """So that a reload finds what is being made, or else what is drawn."""
        shown = self.shown()
        key = shown.key if shown.active else shown.picture.key
        tab.note_in_url({self.name: key} if key != _BUNDLED else {})

    @property
    def _key(self) -> str:
        return f"{self.name}_shown"


def _after(before: Shown[Made], live: Live[Made]) -> Shown[Made]:
    return Shown(live.id, live.state, live, replace(before, before=None))
