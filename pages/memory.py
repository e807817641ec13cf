"""Memory: one prompt through every KV cache, one after the other; what each holds, copies and
takes.
"""

from functools import partial

import streamlit as st

from app.state import messages, polling, status
from app.state.sweeps import CACHES, start
from app.widgets import controls
from app.widgets.charts import downloads, draw, white_background
from app.widgets.markdown import plain
from eab.analysis.sweep import Sweep, cache_sweep
from eab.board.layout import shorten
from eab.config import BranchingConfig
from eab.errors import EabError
from eab.figures.captions import sweep_sentence
from eab.figures.sweep_table import COST_NOTE, sweep_rows
from eab.token_text import visible

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
    messages.clear()
    try:
        config = BranchingConfig.from_settings(controls.settings() | {"cache": "tree"})
        start(CACHES, controls.prompt(), config, controls.model_name(), cache_sweep())
    except EabError as error:
        messages.notify(str(error))


def results(sweep: Sweep, key: str) -> None:
    from eab.figures import caches, tables

    st.text(sweep_sentence(sweep))
    rows = [(row.measure, *row.cells) for row in sweep_rows(sweep)]
    st.table(tables.text_table(rows, ["", *(cache for cache, _ in sweep.pairs)]))
    st.caption(COST_NOTE)
    chart = partial(draw, key=key, white=white_background())
    chart(
        "Bytes held",
        caches.held_sentence(sweep),
        caches.held_figure(sweep),
        "caches-held",
    )
    chart(
        "Time per step",
        caches.time_sentence(sweep),
        caches.time_figure(sweep),
        "caches-time",
    )
    chart(
        "Bytes in all",
        caches.totals_sentence(sweep),
        caches.totals_figure(sweep),
        "caches-totals",
    )
    tree = next((run for cache, run in sweep.pairs if cache == "tree"), None)
    if tree is not None:
        chart(
            "What the tree's paths share",
            caches.paths_sentence(tree),
            caches.paths_figure(tree),
            "caches-paths",
        )
    downloads(
        [
            (
                "Caches (CSV)",
                "caches.csv",
                lambda: tables.costs_table(sweep).to_csv(index=False),
            ),
            (
                "Steps of all caches (CSV)",
                "steps.csv",
                lambda: tables.sweep_steps_table(sweep).to_csv(index=False),
            ),
        ]
    )


shown = CACHES.shown()
active = shown.active
picture = shown.picture
first = next((run.started for _, run in picture.state.pairs), None)
if "prompt" not in st.session_state:
    controls.ensure_defaults()
    messages.notify(
        controls.fill_from(first.prompt, first.config, first.model.name)
        if first is not None
        else ""
    )
controls.ensure_defaults()

st.subheader("What does a KV cache save?")
controls.run_bar(run, CACHES.stop, active)
notices = st.container()
for problem in messages.problems(shown.live, None):
    notices.error(plain(problem))
if not active and shown.live is not None:
    notices.caption(controls.changed_since(first))

with st.sidebar:
    controls.sidebar(varied="cache")
CACHES.watch(status.sweep_progress, active)
with st.expander("What each cache does"):
    st.markdown(WHAT_THEY_DO)

with picture.held_still:
    if first is not None:
        what = "Recorded" if picture.live is None else "Run"
        where = plain(f"{first.model.name}, {first.model.dtype} on {first.model.device}")
        st.caption(f"{what} with {where}: “{plain(shorten(visible(first.prompt), 90))}”")
    results(picture.state, picture.key)
polling.draw_fragments()
