"""Memory: one prompt through every KV cache, one after the other; what each holds, copies and takes."""

from functools import partial

import streamlit as st

from app import controls, session
from app.charts import downloads, draw, white_background
from app.comparing import CACHES, progress, start
from app.words import plain
from eab.comparison import Comparison, of_caches
from eab.config import BranchingConfig
from eab.errors import EabError
from eab.figures.costs import COST_NOTE, cost_lines
from eab.figures.layout import shorten
from eab.figures.sentences import comparison_sentence
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
    session.say("")
    try:
        config = BranchingConfig.from_settings(controls.settings() | {"cache": "tree"})
        start(CACHES, controls.prompt(), config, controls.model_name(), of_caches())
    except EabError as error:
        session.say(str(error))


def results(comparison: Comparison, key: str) -> None:
    from eab.figures import memory, tables

    st.text(comparison_sentence(comparison))
    lines = [(line.measure, *line.cells) for line in cost_lines(comparison)]
    st.table(tables.named(lines, ["", *(cache for cache, _ in comparison.pairs)]))
    st.caption(COST_NOTE)
    chart = partial(draw, key=key, white=white_background())
    chart("Bytes held", memory.held_sentence(comparison), memory.held_figure(comparison), "caches-held")
    chart("Time per step", memory.time_sentence(comparison), memory.time_figure(comparison), "caches-time")
    chart("Bytes in all", memory.totals_sentence(comparison), memory.totals_figure(comparison), "caches-totals")
    tree = next((run for cache, run in comparison.pairs if cache == "tree"), None)
    if tree is not None:
        chart("What the tree's paths share", memory.paths_sentence(tree), memory.paths_figure(tree), "caches-paths")
    downloads(
        [
            ("Caches (CSV)", "caches.csv", lambda: tables.costs_table(comparison).to_csv(index=False)),
            (
                "Steps of all caches (CSV)",
                "steps.csv",
                lambda: tables.comparison_steps_table(comparison).to_csv(index=False),
            ),
        ]
    )


shown = CACHES.shown()
active = shown.active
picture = shown.picture
first = next((run.started for _, run in picture.state.pairs), None)
if "prompt" not in st.session_state:
    controls.ensure_defaults()
    session.say(controls.fill_from(first.prompt, first.config, first.model.name) if first is not None else "")
controls.ensure_defaults()

st.subheader("What does a KV cache save?")
controls.run_bar(run, CACHES.stop, active)
notices = st.container()
for problem in session.problems(shown.live, None):
    notices.error(plain(problem))
if not active and shown.live is not None:
    notices.caption(controls.changed_since(first))

with st.sidebar:
    controls.sidebar(varied="cache")
CACHES.watch(progress, active)
with st.expander("What each cache does"):
    st.markdown(WHAT_THEY_DO)

with picture.held_still:
    if first is not None:
        what = "Recorded" if picture.live is None else "Run"
        where = plain(f"{first.model.name}, {first.model.dtype} on {first.model.device}")
        st.caption(f"{what} with {where}: “{plain(shorten(visible(first.prompt), 90))}”")
    results(picture.state, picture.key)
session.draw_what_polls()
