"""The Batching page: the requests to serve, as a table to edit; and the runs that this server
serves now, redrawn every second, without the prompts of others.
"""

from typing import TYPE_CHECKING, Final

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.streamlit_plotly_theme import GRAY_90

from app.server.batched_runs import PrefixesNow, SegmentNow, ServingNow
from app.state import polling
from app.state.status import owner, worker
from app.widgets.charts import metrics
from app.widgets.glossary import plain
from app.widgets.setting_widgets import KEPT
from eab import token_text
from eab.errors import ConfigError
from eab.formatting import human_bytes, shortened
from eab.labs.batching import (
    MAX_NEW_TOKENS,
    MAX_PATHS,
    MAX_PROMPT,
    MAX_REPEATS,
    MAX_REQUESTS,
    MAX_SLOTS,
    PRESETS,
    ServingRequest,
    Workload,
)
from eab.timing import MIN_REPEATS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from eab.figures.schedule import TimedPass


_DEFAULTS: Final = {
    "batching_preset": next(iter(PRESETS)),
    "batching_slots": 4,
    "batching_repeats": MIN_REPEATS,
    "batching_paths": 1,
}
_BOUNDS: Final = (
    f"At most {MAX_REQUESTS} requests, {MAX_NEW_TOKENS} new tokens and {MAX_PROMPT:,} characters "
    "each. The model may end a text earlier. All requests arrive at once, in the order of the "
    "table."
)


def ensure_defaults() -> None:
    """Give every widget without a value its starting value; Streamlit forgets undrawn widgets."""
    for key, value in _DEFAULTS.items():
        st.session_state.setdefault(key, value)


def choose(preset: DeltaGenerator, slots: DeltaGenerator) -> None:
    """Draw the choice of a set of requests, and of how many of them share a forward pass."""
    preset.selectbox("Requests", [*PRESETS], key="batching_preset", **KEPT)
    most, words = range(1, MAX_SLOTS + 1), "The most requests in one forward pass."
    slots.selectbox("Slots", most, key="batching_slots", help=words, **KEPT)


def edited() -> pd.DataFrame:
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
    st.caption(_BOUNDS)
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
    return Workload(requests(table), *numbers)


def requests(table: pd.DataFrame) -> tuple[ServingRequest, ...]:
    """The rows of the table. Raises ConfigError if a row is incomplete."""
    asked = []
    rows = table[["prompt", "new_tokens"]].itertuples(index=False)
    for number, (prompt, new_tokens) in enumerate(rows, start=1):
        if pd.isna(prompt) or pd.isna(new_tokens):
            raise ConfigError(
                f"request {number} is incomplete; give a prompt and a number of new tokens, or "
                "delete the row"
            )
        asked.append(ServingRequest(str(prompt), int(new_tokens)))
    return tuple(asked)


EVERY: Final = 1.0  # seconds between redraws
_WHAT: Final = (
    "The runs of all open tabs share forward passes. Each row is a slot of the batch, and each "
    "bar is a run: striped during prefill, then plain. The bars show run numbers, not prompts. "
    "Other tasks (sweeps, measurements) measure times and share no forward passes."
)
_PREFIXES: Final = (
    "The prefix cache keeps the KV rows of computed texts as a tree: each segment "
    "follows the one to its left; its height shows its rows and those of all that follow. A run, "
    "or the probe of its threshold, that begins with a known text reads its rows and computes only "
    "the rest. Only texts of your own runs are shown, never those of others. Blue "
    "segments are read right now; the least recently used of the others go first."
)


def draw_now() -> None:
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
    metrics(measures | _own(now), "now")
    if not busy:
        st.text(NOTHING_SERVED)
    last = now.passes[-1].ended_at if now.passes else 0.0
    drawn = _figure(now, now.at // EVERY if busy else last, busy)
    st.plotly_chart(drawn, key="serving-now", alt="What each slot served in the last seconds")
    if caches := worker().prefixes_now(owner()):
        st.header("Prefix cache: computed only once", help=_PREFIXES)
        for prefixes in caches:
            _draw_prefixes(prefixes)
    st.caption(_WHAT)


def _draw_prefixes(prefixes: PrefixesNow) -> None:
    from eab.figures.tables import text_table

    st.subheader(plain(prefixes.model))
    if reason := why_no_prefixes(prefixes):
        st.text(reason)
        return
    metrics(prefix_measures(prefixes), prefixes.model)
    st.table(text_table(prefix_rows(prefixes), _COLUMNS))


_COLUMNS: Final = ("Text", "Rows", "Bytes", "Current readers", "Runs or probes that reused it")
_LABEL: Final = 60  # characters
_UNSHOWN: Final = "text of another run"


def prefix_measures(now: PrefixesNow) -> dict[str, str]:
    """What the prefix cache holds and has saved, by title."""
    share = now.tokens_found / max(1, now.tokens_asked)
    return {
        "Segments": f"{len(now.segments):,}",
        "Held": human_bytes(now.bytes_held),
        "At most": human_bytes(now.byte_limit),
        "Runs that read it": str(sum(one.readers for one in now.segments if one.parent < 0)),
        "Prompt tokens": f"{now.tokens_asked:,}",
        "Of these found": f"{share:.0%}",
    }


def why_no_prefixes(now: PrefixesNow) -> str:
    """Why the prefix cache of a model is empty; empty if it is not."""
    if now.segments:
        return ""
    if now.byte_limit and not now.tokens_asked:
        return "Empty: no run has been made yet."
    if now.byte_limit:
        most = human_bytes(now.byte_limit)
        return f"Empty: no text fitted into it (at most {most}), or runs needed the memory."
    if now.can_reuse:
        return "Turned off (rule prefix_cache_mib)."
    return (
        "The memory of this model cannot be reused for a longer text: its states are those after "
        "the last token, or its rows depend on the length."
    )


def prefix_rows(now: PrefixesNow) -> list[list[str]]:
    """The segments as table rows: text, rows, bytes, readers, found."""
    return [
        [
            _label(segment),
            f"{segment.rows:,}",
            human_bytes(segment.rows * now.row_bytes),
            f"{segment.readers}",
            f"{segment.found:,}",
        ]
        for segment in now.segments
    ]


def _label(segment: SegmentNow) -> str:
    return shortened(_UNSHOWN if segment.text is None else token_text.visible(segment.text), _LABEL)


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


def _own(now: ServingNow) -> dict[str, str]:
    """The number of this tab's newest run, and how many other tasks there are, if there are any."""
    owners = {run: tab for shared in now.passes for run, tab in shared.owners.items()}
    own = [run for run, tab in owners.items() if now.busy and tab == owner()]
    found = {"Your run": str(max(own))} if own else {}
    return found | ({"Other tasks": str(now.taking_turns)} if now.taking_turns else {})
