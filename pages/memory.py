"""Memory: one prompt with each KV cache in turn; the bytes held and copied, and the time taken."""

import streamlit as st

from app.state import session
from app.state.slot import CACHES, Entry
from app.widgets import controls, elements, model_choice
from app.widgets.elements import (
    csv_file,
    kv_allocation_section,
    origin,
    show_problems,
    white_background,
)
from eab.config import BranchingConfig
from eab.labs.caches import BYTES, CACHES_LAB
from eab.labs.jobs import comparison_job
from eab.labs.measurement import Report
from eab.labs.variants import cache_variants, costs_table, variants_sentence

WHAT_THEY_DO = """
For each token that a model processes, every layer computes two vectors: a key (K) and a value (V).
Later tokens attend to them. A KV cache stores them, so that the next step does not process the
whole text again. The K and V of one token in all layers are one *row* of the cache. When a text
forks, its paths share their beginning. The five caches store it differently:

- **tree** stores each row once, even if many paths share it. A fork copies nothing. The tensors
  grow by the rows of *r* steps at a time, and only a growth copies rows.
- **paged** stores rows in blocks (16 rows, a setting), and each path has a table of its blocks, as
  in vLLM. Paths share full blocks; a fork copies the last one if it is not full. vLLM's kernels
  read rows where they are; here, attention joins the blocks of each path in every layer.
- **concat-cow** stores a path as a chain of segments and shares the segments of its ancestors. A
  fork copies nothing, but attention concatenates the segments of each path in every layer and at
  every step. The first EAB engine worked this way.
- **deep-copy** gives each path its own cache, and a fork copies the whole cache. This is the
  behaviour of one ordinary cache per text. Nothing is shared.
- **recompute** stores nothing. Every step processes the whole text of every path again.

A recurrent layer (Mamba, linear attention) or a convolution over the last tokens has no rows, but a
*state* of constant size, and each path has a copy of it. Models with such layers have only tree and
recompute. In a layer with a window, other programs keep only the last rows; the caches here keep
all. On Explore, the bar of separate caches leaves out the rows that no layer reads any longer.

All produce the same tokens for the same seed, up to rounding: the comparison says whether they
did. They differ in time and memory. Each computes its own prompt. The last column, **prompt
reused**, is the tree once more, after its first run has left its rows in the prefix cache: a run
that begins with the same tokens does not compute them again, and a long prompt is stored once for
both. On Explore, all runs that begin alike do so (see Batching, Now).
"""


@session.errors_as_message()
def run() -> None:
    config = BranchingConfig.from_settings(controls.settings() | {"cache": "tree"})
    asked = controls.prompt(), config, model_choice.name()
    CACHES.start(comparison_job(*asked, "caches", cache_variants()))


def results(displayed: Entry[Report]) -> None:
    report = displayed.state
    answer = st.container()
    white = white_background()
    with answer:
        elements.answer(CACHES_LAB, displayed, white)
    with st.expander("What each cache does"):
        elements.markdown(WHAT_THEY_DO)
    st.text(variants_sentence(report))
    elements.answer(BYTES, displayed, white, title="Bytes copied and held")
    costs = csv_file("Costs", "costs.csv", costs_table, report)
    elements.numbers(CACHES_LAB, displayed, [costs])
    tree = report.runs.get("tree")
    if tree is not None and tree.started.model.shares_rows and tree.steps:
        kv_allocation_section([tree], displayed.key, white=white)


current, displayed = CACHES.current(), CACHES.displayed()
active = current.active
first = next((run.started for run in displayed.state.runs.values()), None)
if "prompt" not in st.session_state:
    controls.ensure_defaults()
    if first is not None:
        controls.fill_from(first.prompt, first.config, first.model.full_name)
controls.ensure_defaults()

st.title("What does a KV cache save?")
controls.run_bar(run, CACHES.stop, active, here=True)
show_problems(current)
if not active and current.live is not None:
    st.caption(controls.changed_since(first))

with st.sidebar:
    controls.sidebar(varied="cache", here=True)
CACHES.watch(active, displayed)
with displayed.locked:
    if first is not None:
        origin(first, displayed.live is not None)
    results(displayed)
session.draw_fragments()
