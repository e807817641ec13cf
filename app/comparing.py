"""Which comparison a tab looks at, on a page that compares variants of the settings: its own or the bundled one."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, cast

import streamlit as st

from app import gallery, session
from app.live import LiveComparison
from eab.comparison import Comparison
from eab.config import BranchingConfig
from eab.words import counted


@dataclass(frozen=True)
class ShownComparison:
    """The last complete comparison, and the one that is being made, if there is one. `key` names it for the charts."""

    key: str
    comparison: Comparison
    live: LiveComparison | None = None
    before: "ShownComparison | None" = None

    @property
    def picture(self) -> "ShownComparison":
        """What to draw: a comparison that is not complete leaves the one before it on the screen."""
        complete = self.live is None or (not self.live.active and self.comparison.complete)
        return self if complete or self.before is None else self.before

    @property
    def active(self) -> bool:
        """Whether one is being made."""
        return self.live is not None and self.live.active

    @property
    def held_still(self) -> AbstractContextManager[object]:
        """While this is open the comparison does not change."""
        return self.live.lock if self.live is not None else nullcontext()


@dataclass(frozen=True)
class Comparing:
    """The comparisons of a page. name: in the URL and the session. bundled: what to show before another is made."""

    name: str
    bundled: Callable[[], Comparison]

    def shown(self) -> ShownComparison:
        """What this tab shows: its own comparison, the one named in the URL after a reload, or the bundled one."""
        if self._key not in st.session_state:
            bundled = ShownComparison("bundled", self.bundled())
            live = session.worker().find_comparison(st.query_params.get(self.name, ""))
            ours = live is not None and live.state.kind == bundled.comparison.kind
            st.session_state[self._key] = _of(live, bundled) if live is not None and ours else bundled
        return cast(ShownComparison, st.session_state[self._key])

    def start(self, prompt: str, config: BranchingConfig, model_name: str, empty: Comparison) -> None:
        """Begin a comparison, which fills `empty`, and show it; one of this tab that is still going is stopped."""
        self.stop()
        live = session.worker().compare(prompt, config, model_name, empty, session.owner())
        st.session_state[self._key] = _of(live, self.shown().picture)

    def stop(self) -> None:
        """Stop the comparison on the screen, if it is going."""
        live = self.shown().live
        if live is not None:
            live.stop()

    def watch(self, active: bool) -> None:
        """Say how far a live comparison is, until it ends, and in the URL which it is. active: see session.watch."""
        live = self.shown().live
        session.note_in_url({self.name: live.id} if live is not None else {})
        session.watch(lambda: self.shown().live, progress, active)

    @property
    def _key(self) -> str:
        return f"{self.name}_shown"


CACHES: Final = Comparing("comparison", gallery.caches)
DRAFT_LENGTHS: Final = Comparing("speculation", gallery.draft_lengths)


def progress(live: LiveComparison) -> tuple[float, str]:
    """How far a live comparison is, as a share and in words."""
    if (standing := session.not_moving(live)) is not None:
        return standing
    with live.lock:
        return _share_and_words(live)


def _share_and_words(live: LiveComparison) -> tuple[float, str]:
    comparison, steps = live.state, live.config.max_new_tokens
    all_of_them = counted(len(comparison.variants), comparison.kind)
    if not live.active:
        return 1.0, f"{'Stopped' if live.stopped else 'Done'}: {len(comparison.pairs)} of {all_of_them}"
    run = len(comparison.runs)
    if not run:
        return 0.0, "Warming up"
    step = len(comparison.runs[-1].steps)
    share = (run - 1 + min(1.0, step / steps)) / len(comparison.variants)
    return share, f"{comparison.current} ({run} of {all_of_them}): step {step} of {steps}"


def _of(live: LiveComparison, before: ShownComparison) -> ShownComparison:
    return ShownComparison(
        live.id, live.state, live, before if before.live is None else ShownComparison(before.key, before.comparison)
    )
