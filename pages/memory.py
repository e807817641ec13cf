"""Memory: one prompt through every KV cache, one after the other; what each holds, copies and takes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from app import comparing, controls, session
from app.words import plain
from eab.comparison import Comparison
from eab.config import BranchingConfig
from eab.errors import EabError
from eab.figures.costs import COST_NOTE, cost_lines
from eab.figures.layout import shorten
from eab.figures.sentences import comparison_sentence
from eab.token_text import visible

POLL_SECONDS = 0.25
WHAT_THEY_DO = """
When a model reads a token, every layer makes two vectors of it: a key (K) and a value (V). Later tokens look at them.
A KV cache keeps them, so that the next step does not have to read the whole text again. When a text forks, its paths
have the same beginning, and each cache deals with that in its own way:

- **tree** stores the K and V of a token once, in one row, however many paths see it. A fork copies nothing. The tensors
  grow by *r* steps' worth of rows at a time; only then are rows copied.
- **concat-cow** gives each path a chain of pieces and shares the pieces of its ancestors. A fork copies nothing, but to
  attend, each path puts its pieces together again, in every layer, at every step. The first EAB engine did it this way.
- **deep-copy** gives each path a cache of its own and copies it whole at a fork. This is what you get with one ordinary
  cache per text. Nothing is shared.
- **recompute** keeps nothing. Every step sends the whole text of every path through the model again.

All four say the same: the same tokens for the same seed. They differ in time and bytes.
"""


def run() -> None:
    session.say("")
    try:
        config = BranchingConfig.from_settings(controls.settings() | {"cache": "tree"})
        comparing.start(controls.prompt(), config, controls.model_name())
    except EabError as error:
        session.say(str(error))


def watch() -> None:
    """Say how far a live comparison is, until it ends."""
    live = comparing.shown().live
    if live is None:
        return
    active = live.active
    live.watch()
    st.progress(*comparing.progress(live))
    if not active and st.session_state.polling:
        st.rerun()


def results(comparison: Comparison, key: str) -> None:
    from eab.figures import memory, tables

    st.text(comparison_sentence(comparison))
    lines = [(line.measure, *line.cells) for line in cost_lines(comparison)]
    st.table(tables.named(lines, ["", *(cache for cache, _ in comparison.pairs)]))
    st.caption(COST_NOTE)
    use = "The camera above each chart then saves it black on white."
    white = st.toggle("White background, for print", key="print_view", help=use)
    chart = partial(draw, key=key, white=white)
    chart("Bytes held", "held", memory.held_sentence(comparison), memory.held_figure(comparison))
    chart("Time per step", "time", memory.time_sentence(comparison), memory.time_figure(comparison))
    chart("Bytes in all", "totals", memory.totals_sentence(comparison), memory.totals_figure(comparison))
    tree = next((run for cache, run in comparison.pairs if cache == "tree"), None)
    if tree is not None:
        chart("What the tree's paths share", "paths", memory.paths_sentence(tree), memory.paths_figure(tree))
    take_home(comparison)


def draw(title: str, name: str, sentence: str, figure: Any, *, key: str, white: bool) -> None:
    """One chart under its heading and its sentence."""
    from eab.figures.memory import for_print

    st.subheader(title)
    st.text(sentence)
    st.plotly_chart(
        for_print(figure) if white else figure,
        theme=None if white else "streamlit",
        key=f"{name}-{key}-{white}",
        alt=sentence,
        config={"toImageButtonOptions": {"format": "png", "filename": f"caches-{name}", "scale": 3}},
    )


def take_home(comparison: Comparison) -> None:
    from eab.figures.tables import comparison_steps_table, costs_table

    left, right = st.columns(2)
    files: list[tuple[Any, str, str, Callable[[], str]]] = [
        (left, "Caches (CSV)", "caches.csv", lambda: costs_table(comparison).to_csv(index=False)),
        (
            right,
            "Steps of all caches (CSV)",
            "steps.csv",
            lambda: comparison_steps_table(comparison).to_csv(index=False),
        ),
    ]
    for column, label, name, make in files:
        column.download_button(label, make, name, key=f"download-{name}", on_click="ignore", width="stretch")


shown = comparing.shown()
picture = shown.picture
first = next((run.started for _, run in picture.comparison.pairs), None)
if "prompt" not in st.session_state:
    controls.ensure_defaults()
    session.say(controls.fill_from(first.prompt, first.config, first.model.name) if first is not None else "")
controls.ensure_defaults()
active = shown.live is not None and shown.live.active
st.session_state.polling = active

st.subheader("What does a KV cache save?")
controls.run_bar(run, comparing.stop, active)
notices = st.container()
for problem in session.problems(shown.live, None):
    notices.error(plain(problem))
if not active and shown.live is not None:
    notices.caption(controls.changed_since(first))

st.fragment(watch, run_every=session.poll_seconds(POLL_SECONDS) if active else None)()

with st.sidebar:
    controls.sidebar(choose_cache=False)
with st.expander("What each cache does"):
    st.markdown(WHAT_THEY_DO)

with picture.held_still:
    if first is not None:
        what = "Recorded" if picture.live is None else "Run"
        where = plain(f"{first.model.name}, {first.model.dtype} on {first.model.device}")
        st.caption(f"{what} with {where}: “{plain(shorten(visible(first.prompt), 90))}”")
    results(picture.comparison, picture.key)
