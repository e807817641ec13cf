"""Batching: the same requests served one by one, in static batches and by continuous batching; and
the runs that this server serves now, redrawn every second, without the prompts of others.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.streamlit_plotly_theme import GRAY_90

from app.server.batched_runs import PrefixesNow, ServingNow
from app.state import session
from app.state.session import KEPT, owner, worker
from app.state.slot import BATCHING, Entry, note_in_url
from app.widgets import controls, elements, model_choice
from app.widgets.elements import (
    csv_file,
    kv_allocation_section,
    metrics,
    origin,
    page_controls,
    plain,
    show_problems,
    start_button,
    stop_button,
    white_background,
)
from eab.errors import ConfigError
from eab.formatting import human_bytes
from eab.labs import batching as results
from eab.labs.batching import (
    MAX_NEW_TOKENS,
    MAX_PATHS,
    MAX_PROMPT,
    MAX_REPEATS,
    MAX_REQUESTS,
    MAX_SLOTS,
    PRESETS,
    Workload,
    agreement_sentence,
    requests_of,
    requests_table,
    shown,
    workload_of,
)
from eab.labs.jobs import serving_job
from eab.labs.measurement import Report
from eab.timing import MIN_REPEATS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from eab.figures.schedule import TimedPass


DEFAULTS: Final = {
    "batching_preset": next(iter(PRESETS)),
    "batching_slots": 4,
    "batching_repeats": MIN_REPEATS,
    "batching_paths": 1,
}
BOUNDS: Final = (
    f"At most {MAX_REQUESTS} requests, {MAX_NEW_TOKENS} new tokens and {MAX_PROMPT:,} characters "
    "each. The model may end a text earlier. All requests arrive at once, in the order of the "
    "table."
)


def ensure_request_defaults() -> None:
    """Give every widget without a value its starting value; Streamlit forgets undrawn widgets."""
    for key, value in DEFAULTS.items():
        st.session_state.setdefault(key, value)


def choose_requests(preset: DeltaGenerator, slots: DeltaGenerator) -> None:
    """Draw the choice of a set of requests, and of how many of them share a forward pass."""
    preset.selectbox("Requests", [*PRESETS], key="batching_preset", **KEPT)
    most, words = range(1, MAX_SLOTS + 1), "The most requests in one forward pass."
    slots.selectbox("Slots", most, key="batching_slots", help=words, **KEPT)


def edited_requests() -> pd.DataFrame:
    """Draw the table and the other settings; return `prompt` and `new_tokens` of each request."""
    preset = st.session_state["batching_preset"]
    table = st.data_editor(
        pd.DataFrame(PRESETS[preset], columns=["prompt", "new_tokens"]),
        num_rows="dynamic",
        hide_index=True,
        width="stretch",
        height=240,
        key=f"requests of {preset}",
        column_config={
            "prompt": st.column_config.TextColumn("Prompt", width="large", required=True),
            "new_tokens": st.column_config.NumberColumn(
                "Max new tokens", default=16, step=1, required=True
            ),
        },
    )
    st.caption(BOUNDS)
    left, right = st.columns(2)
    left.select_slider(
        "Repeats per way",
        range(1, MAX_REPEATS + 1),
        key="batching_repeats",
        help=(
            f"The ways alternate. Their times are compared if there are at least {MIN_REPEATS} "
            "repeats."
        ),
        **KEPT,
    )
    right.select_slider(
        "Paths per request",
        range(1, MAX_PATHS + 1),
        key="batching_paths",
        help="With more than one path, texts fork where the model hesitates.",
        **KEPT,
    )
    return table


def workload(table: pd.DataFrame) -> Workload:
    """The workload to serve. Raises ConfigError if a row or a setting is out of range."""
    numbers = (int(st.session_state[f"batching_{name}"]) for name in ("slots", "repeats", "paths"))
    rows = table[["prompt", "new_tokens"]].astype(object)
    requests = requests_of(rows.where(rows.notna(), None).itertuples(index=False))
    return Workload(requests, *numbers)


COLUMNS: Final = ("Text", "Rows", "Bytes", "Current readers", "Runs or probes that reused it")
EVERY: Final = 1.0  # seconds between redraws
WHAT: Final = (
    "The runs of all open tabs share forward passes. Each row is a slot of the batch, and each "
    "bar is a run: striped during prefill, then plain. The bars show run numbers, not prompts. "
    "Other tasks (sweeps, measurements) measure times and share no forward passes."
)
PREFIXES: Final = (
    "The prefix cache keeps the KV rows of computed texts as a tree: each segment "
    "follows the one to its left; its height shows its rows and those of all that follow. A run, "
    "or the probe of its threshold, that begins with a known text reads its rows and computes only "
    "the rest. Only texts of your own runs are shown, never those of others. Blue "
    "segments are read right now; the least recently used of the others go first."
)


def draw_now() -> None:
    """Draw the view here, and again every second."""
    session.fragment(lambda: redraw(), session.interval(EVERY))  # lambda: `redraw` keeps its name


def redraw() -> None:
    from eab.figures.schedule import NOTHING_SERVED, rate

    now = worker().serving_now()
    passes, busy = timed(now), now.busy
    measures = {
        "In the batch": str(now.running),
        "Waiting": str(now.waiting),
        "New tokens per second": f"{rate(passes) if busy else 0:.0f}",
        "KV bytes held": human_bytes(passes[-1].record.kv_bytes if passes and busy else 0),
    }
    metrics(measures | now.of_owner(owner()), "now")
    if not busy:
        st.text(NOTHING_SERVED)
    last = now.passes[-1].ended_at if now.passes else 0.0
    drawn = schedule_figure(now, now.at // EVERY if busy else last, busy)
    st.plotly_chart(drawn, key="serving-now", alt="What each slot served in the last seconds")
    if caches := worker().prefixes_now(owner()):
        st.header("Prefix cache: computed only once", help=PREFIXES)
        for prefixes in caches:
            draw_prefixes(prefixes)
    st.caption(WHAT)


def draw_prefixes(prefixes: PrefixesNow) -> None:
    from eab.figures.tables import text_table

    st.subheader(plain(prefixes.model))
    if prefixes.why_empty:
        st.text(prefixes.why_empty)
        return
    metrics(prefixes.measures, prefixes.model)
    st.table(text_table(prefixes.table, COLUMNS))


@st.cache_resource(max_entries=2, show_spinner=False)
def schedule_figure(_now: ServingNow, moment: float, busy: bool) -> "Figure":
    """The figure at this moment, shared by all tabs, because a whole class may watch it."""
    from eab.figures.charts import in_ink
    from eab.figures.schedule import now_figure

    return in_ink(now_figure(timed(_now), busy), GRAY_90)


def timed(now: ServingNow) -> "list[TimedPass]":
    """The passes, in seconds before now; the last picture stays while nothing is served."""
    from eab.figures.schedule import TimedPass

    end = now.at if now.busy or not now.passes else now.passes[-1].ended_at
    return [TimedPass(shared.ended_at - end, shared.record) for shared in now.passes]


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
    widths = [4, 1.7, 2.7, 1.6]  # "Measure" fits on a tablet
    preset, slots, measure, stop = st.columns(widths, vertical_alignment="bottom")
    choose_requests(preset, slots)
    with measure:
        words = "Serve these requests on this machine, in all three ways."
        missing = controls.model_missing(here=True)
        pressed = start_button("Measure", "batching_start", missing, words, active)
    with stop:
        stop_button("batching_stop", BATCHING.stop, active)
    with st.expander("Edit requests, repeats and paths"):
        table = edited_requests()
    chosen, problem = None, ""
    try:
        chosen = workload(table)
    except ConfigError as error:
        problem = str(error)
    if pressed:
        measure_here(chosen, problem)
    return chosen


def measure_here(chosen: Workload | None, problem: str) -> None:
    with session.errors_as_message():
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
        elements.answer(results.BATCHING, drawn, white, batching_figure(report, across))
    st.header("In numbers")
    st.text(agreement_sentence(report))
    requests = csv_file("Requests", "requests.csv", requests_table, report)
    origin(report.began, displayed.live is not None)
    elements.numbers(results.BATCHING, displayed, [requests])
    runs = [*report.runs.values()]
    if runs[0].started.model.shares_rows:
        st.caption("Below: the KV memory of continuous batching. A step is a forward pass.")
        begins = shown(report)["continuous"].first_token_passes()
        first_steps = [begins[number] for number in sorted(begins)]
        kv_allocation_section(runs, displayed.key, first_steps, white)


controls.ensure_defaults()
ensure_request_defaults()
active = BATCHING.current().active  # before anything is drawn; see session.watch
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
        draw_now()
else:
    st.query_params.pop(VIEW, None)
    with ways:
        three_ways()
with st.expander("How it works"):
    elements.markdown(HOW_IT_WORKS)
session.draw_fragments()
