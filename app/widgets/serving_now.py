"""The runs that this server serves now, redrawn every second, without the prompts of others."""

from typing import TYPE_CHECKING, Final

import streamlit as st

# The browser replaces this text colour by that of its theme, light or dark.
from streamlit.elements.lib.streamlit_plotly_theme import GRAY_90

from app.server.batched_runs import ServingNow
from app.state import polling
from app.state.process import owner, worker
from app.widgets.charts import metrics
from app.widgets.glossary import plain
from eab.analysis.prefixes import PrefixesNow
from eab.formatting import counted, human_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from eab.figures.schedule import TimedPass

EVERY: Final = 1.0  # seconds between redraws
_WHAT: Final = (
    "The runs of all open tabs share forward passes. Each row is a slot of the batch, and each "
    "bar is a run: striped during prefill, then plain. The bars show run numbers, not prompts."
)
_PREFIXES: Final = (
    "The prefix cache keeps the KV rows of computed texts as a tree: each segment "
    "follows the one to its left; its height shows its rows and those of all that follow. A run, "
    "or the probe of its threshold, that begins with a known text reads its rows and computes only "
    "the rest. Only texts of your own runs are shown, never those of others. Blue "
    "segments are read right now; the least recently used of the others go first."
)


def draw() -> None:
    """Draw the view here, and again every second."""
    polling.fragment(lambda: _redraw(), polling.interval(EVERY))  # lambda: `_redraw` keeps its name


def _redraw() -> None:
    from eab.figures.schedule import NOTHING_SERVED, rate

    now = worker().serving_now()
    passes, busy = _timed(now), now.busy
    measures = {
        "In the batch": str(now.running),
        "Waiting": str(now.waiting),
        "New tokens per second": f"{rate(passes) if busy else 0:.0f}",
        "KV bytes held": human_bytes(passes[-1].record.kv_bytes if passes and busy else 0),
    }
    metrics(measures, "now")
    st.text(_own(now) if busy else NOTHING_SERVED)
    last = now.passes[-1].ended_at if now.passes else 0.0
    drawn = _figure(now, now.at // EVERY if busy else last, busy)
    st.plotly_chart(drawn, key="serving-now", alt="What each slot served in the last seconds")
    if now.taking_turns:
        st.caption(_other_tasks_caption(now))
    if caches := worker().prefixes_now(owner()):
        st.header("Prefix cache: computed only once", help=_PREFIXES)
        for prefixes in caches:
            _draw_prefixes(prefixes)
    st.caption(_WHAT)


def _draw_prefixes(prefixes: PrefixesNow) -> None:
    from eab.figures.kv_allocation import (
        COLUMNS,
        prefix_measures,
        prefix_rows,
        why_no_prefixes,
    )
    from eab.figures.tables import text_table

    st.subheader(plain(prefixes.model))
    if reason := why_no_prefixes(prefixes):
        st.text(reason)
        return
    metrics(prefix_measures(prefixes), prefixes.model)
    st.table(text_table(prefix_rows(prefixes), COLUMNS))


@st.cache_resource(max_entries=2, show_spinner=False)
def _figure(_now: ServingNow, moment: float, busy: bool) -> "Figure":
    """The figure at this moment, shared by all tabs, because a whole class may watch it."""
    from eab.figures.charts import in_ink
    from eab.figures.schedule import now_figure

    return in_ink(now_figure(_timed(_now), busy), GRAY_90)


def _timed(now: ServingNow) -> "list[TimedPass]":
    """The passes, in seconds before now; the last picture stays while nothing is served."""
    from eab.figures.schedule import TimedPass

    end = now.at if now.busy or not now.passes else now.passes[-1].ended_at
    return [TimedPass(shared.ended_at - end, shared.record) for shared in now.passes]


def _own(now: ServingNow) -> str:
    owners = {run: tab for shared in now.passes for run, tab in shared.owners.items()}
    own = [run for run, tab in owners.items() if tab == owner()]
    return f"Your run is number {max(own)}." if own else ""


def _other_tasks_caption(now: ServingNow) -> str:
    tasks = counted(now.taking_turns, "other task")
    return (
        f"{tasks} (sweeps, measurements) of all tabs, which measure times and share no forward "
        "passes."
    )
