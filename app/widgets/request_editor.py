"""What the Batching page serves: a set of requests, a table to edit it, and settings."""

from typing import Final

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.widgets.setting_widgets import KEPT
from eab.errors import ConfigError
from eab.labs.batching.workloads import (
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
