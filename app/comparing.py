"""Which comparison of caches one browser tab looks at: its own, or the bundled one."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, cast

import streamlit as st

from app import gallery, session
from app.live import LiveComparison
from eab.comparison import Comparison, of_caches
from eab.config import BranchingConfig

_SHOWN: Final = "comparison_shown"
_IN_URL: Final = "comparison"


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
        unfinished = self.live is not None and (self.live.active or not self.comparison.pairs)
        return self.before if unfinished and self.before is not None else self

    @property
    def held_still(self) -> AbstractContextManager[object]:
        """While this is open the comparison does not change."""
        return self.live.lock if self.live is not None else nullcontext()


def shown() -> ShownComparison:
    """What this tab shows: its own comparison, the one named in the URL after a reload, or the bundled one."""
    if _SHOWN not in st.session_state:
        bundled = ShownComparison("bundled", gallery.comparison())
        live = session.worker().find_comparison(st.query_params.get(_IN_URL, ""))
        st.session_state[_SHOWN] = bundled if live is None else _of(live, bundled)
    return cast(ShownComparison, st.session_state[_SHOWN])


def start(prompt: str, config: BranchingConfig, model_name: str) -> None:
    """Begin a comparison and show it; one of this tab that is still going is stopped."""
    stop()
    live = session.worker().compare(prompt, config, model_name, of_caches(), session.owner())
    st.query_params[_IN_URL] = live.id
    st.session_state[_SHOWN] = _of(live, shown().picture)


def stop() -> None:
    """Stop the comparison on the screen, if it is going."""
    live = shown().live
    if live is not None:
        live.stop()


def progress(live: LiveComparison) -> tuple[float, str]:
    """How far a live comparison is, as a share and in words."""
    if (standing := session.not_moving(live)) is not None:
        return standing
    with live.lock:
        return _share_and_words(live)


def _share_and_words(live: LiveComparison) -> tuple[float, str]:
    comparison, steps = live.state, live.config.max_new_tokens
    if not live.active:
        how = "Stopped" if live.stopped else "Done"
        return 1.0, f"{how}: {len(comparison.pairs)} of {len(comparison.variants)} caches"
    run = len(comparison.runs)
    if not run:
        return 0.0, "Warming up"
    step = len(comparison.runs[-1].steps)
    share = (run - 1 + min(1.0, step / steps)) / len(comparison.variants)
    return share, f"{comparison.current} ({run} of {len(comparison.variants)}): step {step} of {steps}"


def _of(live: LiveComparison, before: ShownComparison) -> ShownComparison:
    return ShownComparison(
        live.id, live.state, live, before if before.live is None else ShownComparison(before.key, before.comparison)
    )
