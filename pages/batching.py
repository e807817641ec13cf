"""Batching: the same requests served one by one, in static batches and by continuous batching; and
the runs that this server serves now.
"""

from dataclasses import replace
from typing import Final

import streamlit as st

from app.state import polling, status
from app.state.slot import BATCHING, Entry, note_in_url
from app.widgets import batching, charts, controls, glossary, model_choice
from app.widgets.charts import csv_file, kv_allocation_section, origin, white_background
from app.widgets.status_line import page_controls, show_problems, start_button, stop_button
from eab.errors import ConfigError
from eab.labs import batching as results
from eab.labs.batching import (
    Workload,
    agreement_sentence,
    requests_table,
    shown,
    workload_of,
)
from eab.labs.jobs import serving_job
from eab.labs.measurement import Report

VIEW: Final = "view"  # the URL parameter of the open tab
THREE_WAYS, NOW = "Three ways", "Now"
PASSES, SECONDS = "Forward passes", "Seconds"
HOW_IT_WORKS = """
A forward pass reads all weights of the model, for one token or for many. So a server puts several
requests into each pass, one per *slot* of the batch.

- **One by one**: a request begins when the previous one has ended. Passes are nearly empty.
- **Static batches**: one request per slot begins, all at the same time. The next batch begins when
  the longest text has ended; until then, the slots of shorter texts are idle.
- **Continuous batching** (Orca, OSDI 2022; vLLM): the scheduler chooses the batch again before
  every pass. A request leaves after its last token, and a waiting request takes its slot in the
  next pass. Prompts are read in chunks, in the same passes as the decode steps of other requests
  (*chunked prefill*; Sarathi-Serve, [arXiv 2403.02310](https://arxiv.org/abs/2403.02310)).

All three run on this engine, with the same scheduler. They differ only in when a request is
submitted. Only the passes of this measurement are timed, not those of other tabs.
"""


def bar() -> Workload | None:
    """Draw the requests, Measure and Stop; return what Measure serves, if the table allows it."""
    preset, slots, measure, stop = st.columns([5, 2, 2, 2], vertical_alignment="bottom")
    batching.choose(preset, slots)
    with measure:
        words = "Serve these requests on this machine, in all three ways."
        missing = controls.model_missing(here=True)
        pressed = start_button("Measure", "batching_start", missing, words, active)
    with stop:
        stop_button("batching_stop", BATCHING.stop, active)
    with st.expander("Edit requests, repeats and paths"):
        table = batching.edited()
    chosen, problem = None, ""
    try:
        chosen = batching.workload(table)
    except ConfigError as error:
        problem = str(error)
    if pressed:
        measure_here(chosen, problem)
    return chosen


def measure_here(chosen: Workload | None, problem: str) -> None:
    with status.errors_as_message():
        if chosen is None:
            raise ConfigError(problem)
        BATCHING.start(serving_job(chosen, model_choice.name()))
    st.rerun()


def three_ways() -> None:
    with page_controls():
        chosen = bar()
        show_problems(BATCHING.current())
        BATCHING.watch(active)
    displayed = BATCHING.displayed()
    with displayed.locked:
        if (
            not active
            and chosen is not None
            and not workload_of(displayed.state).serves_like(chosen)
        ):
            st.caption(
                "The chart shows other requests, slots or paths. Press Measure to serve yours."
            )
        draw(displayed)


def draw(displayed: Entry[Report]) -> None:
    from eab.figures.schedule import Across
    from eab.labs.charts import batching_figure

    report = displayed.state
    chart = st.container()
    with st.container(horizontal=True, vertical_alignment="center", key="batching_view_options"):
        axis = st.segmented_control(
            "Horizontal axis",
            [PASSES, SECONDS],
            default=PASSES,
            key="batching_axis",
            required=True,
            label_visibility="collapsed",
        )
        white = white_background()
    across: Across = "seconds" if axis == SECONDS else "passes"
    drawn = replace(displayed, key=f"{displayed.key}-{across}")
    with chart:
        charts.answer(results.BATCHING, drawn, white, batching_figure(report, across))
    st.header("In numbers")
    st.text(agreement_sentence(report))
    requests = csv_file("Requests", "requests.csv", requests_table, report)
    origin(report.began, displayed.live is not None)
    charts.numbers(results.BATCHING, displayed, [requests])
    runs = [*report.runs.values()]
    if runs[0].started.model.shares_rows:
        st.caption("Below: the KV memory of continuous batching. A step is a forward pass.")
        begins = shown(report)["continuous"].first_token_passes()
        first_steps = [begins[number] for number in sorted(begins)]
        kv_allocation_section(runs, displayed.key, first_steps, white)


controls.ensure_defaults()
batching.ensure_defaults()
active = BATCHING.current().active  # before anything is drawn; see polling.watch
st.session_state.setdefault(
    "batching_view", NOW if st.query_params.get(VIEW) == "now" else THREE_WAYS
)

st.title("Does a short request have to wait for a long one?")
with st.sidebar:
    controls.choose_model(here=True)
ways, now = st.tabs([THREE_WAYS, NOW], on_change="rerun", key="batching_view")
if now.open:
    note_in_url({VIEW: "now"})
    with now:
        batching.draw_now()
else:
    st.query_params.pop(VIEW, None)
    with ways:
        three_ways()
with st.expander("How it works"):
    glossary.markdown(HOW_IT_WORKS)
polling.draw_fragments()
