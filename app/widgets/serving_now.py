"""Who this server serves right now, redrawn every second; no prompts of others."""

from typing import Final

import streamlit as st

from app.server.serving_log import ServingNow
from app.state import polling
from app.state.process import owner, worker
from eab.formatting import counted, human_bytes

EVERY: Final = 1.0  # seconds between redraws
_WHAT: Final = (
    "The runs that all open tabs started on Explore share forward passes. A row is a slot of the "
    "batch, a bar is a run: striped while its prompt is read, then plain. Only the numbers of runs "
    "are shown, no prompts."
)


def draw() -> None:
    """Draw it here, and again every second."""
    st.caption(_WHAT)
    polling.fragment(lambda: _redraw(), polling.interval(EVERY))  # a name of its own


def _redraw() -> None:
    from eab.figures.serving_now import TimedPass, now_figure, now_sentence, rate

    now = worker().serving_now()
    last = now.passes[-1].ended_at if now.passes else now.at
    moment = now.at if now.busy else last  # an idle server keeps the last picture
    passes = [TimedPass(one.ended_at - moment, one.record) for one in now.passes]
    sentence = now_sentence(passes, now.running, now.waiting)
    held = passes[-1].record.kv_bytes if passes and now.busy else 0
    for column, (name, value) in zip(
        st.columns(4),
        (
            ("In the batch", str(now.running)),
            ("Waiting", str(now.waiting)),
            ("New tokens per second", f"{rate(passes) if now.busy else 0:.0f}"),
            ("KV bytes held", human_bytes(held)),
        ),
        strict=True,
    ):
        column.metric(name, value)
    st.text(sentence)
    if now.taking_turns:
        st.caption(_beside(now))
    _picture(now_figure(passes, _own(now), now.busy), sentence)


def _picture(figure: object, sentence: str) -> None:
    from streamlit.elements.lib.streamlit_plotly_theme import GRAY_90

    from eab.figures.charts import in_ink

    st.plotly_chart(in_ink(figure, GRAY_90), key="serving-now", alt=sentence)


def _own(now: ServingNow) -> frozenset[int]:
    """The runs of this tab."""
    return frozenset(run for one in now.passes for run, tab in one.owners.items() if tab == owner())


def _beside(now: ServingNow) -> str:
    tasks = counted(now.taking_turns, "other task")
    return f"{tasks} (sweeps, measurements) of all tabs: they time themselves and share no pass."
