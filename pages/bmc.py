"""BMC: how many spare rows to allocate at a time.

The run on Explore at any r, the cost model, and experiments on this machine.
"""

from typing import Final

import streamlit as st

from app.server.tasks import LiveTask
from app.state import session, tab
from app.state.slot import BMC, Entry, note_in_url
from app.widgets import controls, elements, model_choice
from app.widgets.elements import (
    csv_file,
    draw_chart,
    metrics,
    origin,
    plain,
    quoted,
    show_problems,
    start_button,
    stop_button,
)
from eab.config import AUTO, AllocationStep
from eab.figures.captions import ENDINGS
from eab.figures.kv_memory import best_r_of, demand_of
from eab.formatting import as_sentence
from eab.labs.bmc import LABS, Experiment, fit_measures, fitted
from eab.labs.jobs import experiment_job
from eab.labs.measurement import Report
from eab.token_text import visible

ROWS: Final = (256, 512, 1024, 2048)
CURVE: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TAB: Final = "experiment"  # the URL parameter of the open tab
IN_SHORT = """
A KV cache grows by one row per token, and each growth allocates longer tensors and copies all rows.
**BMC** (Ramachandran et al., [arXiv 2511.12031](https://arxiv.org/abs/2511.12031)) allocates the
rows of *r* steps at a time: a larger *r* means fewer copies and more spare rows.
"""
PADDED_OR_SLICED = """
With a growth at every step (*r* = 1), the number of copied rows increases with the square of the
length. If all rows are allocated at the start, nothing is copied. Spare rows cost compute only if
the attention kernel processes them. The tree cache supports both:

- **sliced** (the default): attention reads only the rows in use. Spare rows then cost only memory,
  so a large r is no loss. Shapes change at every step; ordinary kernels handle this well.
- **padded**: attention reads all allocated rows, and a mask hides the spare ones. CUDA graphs need
  this, because shapes stay fixed until the tensors grow. The best r then balances copies and spare
  rows.

With `auto` (the default) the tensors grow by a quarter of the rows in use, and by at least the rows
of 4 steps: what is copied stays proportional to the length, however long a run becomes.

After a fork both need a mask, because the rows of one path are scattered among those of other
paths. Both produce the same tokens, up to rounding.
"""
# KaTeX renders a block only if its `$$` stand alone on their lines.
THE_MODEL = r"""
With *n* rows in use, a growth costs $k_c n + A$ and happens every *r* steps. A spare row adds $k_a$
to a step; on average, the rows of $(r-1)/2$ steps are spare. With *m* rows kept per step, and
*N* rows to write after a prompt of *P* rows, the best *r* for the whole run is

$$
r^* = \frac{1}{m}\sqrt{\frac{m\,(k_c (N + 2P) + 2A)}{k_a}}
$$

`eab/engine/caches/growth.py` derives it; the constants are fitted on this machine, and those of the
paper are not used.
"""
PAPER = (
    "From the paper's abstract (arXiv 2511.12031): up to 3.2 times the throughput of Hugging Face "
    "on average without speculative decoding, up to 1.39 times on top of speculative decoding, and "
    "up to 1.36 and 2.29 times the throughput of vLLM and DeepSpeed. These are the paper's results "
    "on other hardware; this page does not reproduce them."
)
# For each experiment: its title, and what it measures.
EXPERIMENTS: Final[dict[Experiment, tuple[str, str]]] = {
    "growth": (
        "Sensitivity to r",
        "Time for writing many rows to the KV cache, at each r. Takes a few minutes.",
    ),
    "sizes": (
        "Time and memory by model size",
        "Is the predicted r* good for other model shapes and lengths? Takes some minutes.",
    ),
    "rejection": (
        "Rejected drafts",
        "Draft tokens in the spare rows, verified by the model. Takes a few minutes.",
    ),
}


@session.errors_as_message()
def start(experiment: Experiment) -> None:
    stop()
    rows = int(st.session_state.bmc_rows)
    BMC[experiment].start(experiment_job(experiment, rows, model_choice.name()))


def stop() -> None:
    for slot in BMC.values():
        slot.stop()


def active_experiment() -> LiveTask[Report] | None:
    """The active experiment of this tab; None if there is none."""
    current = (slot.current() for slot in BMC.values())
    return next((entry.live for entry in current if entry.active), None)


def show_interrupted() -> None:
    """Explain which experiments ended early and were not repeated; their old results are shown."""
    for experiment, slot in BMC.items():
        live = slot.current().live
        if live is None or live.active or slot.displayed().live is live:
            continue
        reason, message = live.ending
        notify = st.error if reason == "failed" else st.caption
        notify(
            plain(
                f"{EXPERIMENTS[experiment][0]}: {ENDINGS[reason]}. {as_sentence(visible(message))}"
            )
        )


def your_run() -> None:
    """Draw the run of the Explore page at another r, computed from its events."""
    from eab.labs import bmc as results
    from eab.labs.bmc import allocations_table
    from eab.labs.charts import chart_figure

    explored = tab.displayed()
    with explored.locked:
        demand = demand_of(explored.run) if explored.run is not None else None
        prompt = explored.asked.prompt
    st.header("Your run at any r")
    if demand is None:
        st.info(
            "This section needs a run with the tree cache and without a drafter. Make one on the "
            "Explore page, then come back."
        )
        return
    st.caption(
        f"The run on the Explore page: “{quoted(prompt)}”. The slider recomputes its rows from "
        "the recording, without the model."
    )
    costs = fitted(BMC["growth"].displayed().state)
    choices: tuple[AllocationStep, ...] = (AUTO, *CURVE)
    best = None if costs is None else best_r_of(demand, CURVE, costs)
    st.session_state.setdefault("bmc_r", best or 16)
    r = st.select_slider("r: steps of spare room per allocation", choices, key="bmc_r")
    metrics(results.steps_measures(demand.at(r)), "bmc")
    figure = chart_figure(results.run_curve(demand, CURVE, r if isinstance(r, int) else None))
    draw_chart("", results.run_curve_sentence(best), figure, "bmc-run-curve", str(r))
    table = allocations_table
    label, name, make = csv_file("Run at every r", "run-by-r.csv", table, demand, CURVE)
    st.download_button(label, make, name, key=f"download-{name}", on_click="ignore")


def experiments() -> None:
    """Draw the experiments in tabs, each with a button; only the open tab is computed and sent."""
    st.header("Measure it here")
    left, right = st.columns([3, 1])
    with left:
        st.segmented_control(
            "Rows per run",
            ROWS,
            key="bmc_rows",
            required=True,
            help="More rows show the effect better but take longer.",
        )
    with right:
        stop_button("bmc_stop", stop, active is not None)
    session.watch(active_experiment, active is not None)
    show_problems()
    show_interrupted()
    titles = {name: title for name, (title, _) in EXPERIMENTS.items()}
    in_url = next((titles[name] for name in titles if name == st.query_params.get(TAB)), None)
    st.session_state.setdefault("bmc_tab", in_url or next(iter(titles.values())))
    tabs = st.tabs(list(titles.values()), on_change="rerun", key="bmc_tab")
    for name, page in zip(EXPERIMENTS, tabs, strict=True):
        note_in_url(BMC[name].in_url())
        if page.open:
            note_in_url({TAB: name})
            displayed = BMC[name].displayed()
            with page, displayed.locked:
                one_experiment(name, displayed)


def one_experiment(name: Experiment, displayed: Entry[Report]) -> None:
    """Draw the button of an experiment, its results, and where they were measured."""
    left, right = st.columns([1, 3], vertical_alignment="center")
    with left:
        missing, is_active = controls.model_missing(here=True), active is not None
        start_button("Measure", f"run_{name}", missing, "", is_active, start, (name,))
    right.caption(EXPERIMENTS[name][1])
    origin(displayed.state.began, displayed.live is not None)
    elements.answer(LABS[name], displayed)
    elements.numbers(LABS[name], displayed)


controls.ensure_defaults()
st.session_state.setdefault("bmc_rows", 512)

active = active_experiment()  # before anything is drawn; see session.watch
st.title("How far ahead should the cache allocate?")
elements.markdown(IN_SHORT)
with st.sidebar:
    controls.choose_model(here=True)
your_run()
with st.expander("Padded or sliced"):
    elements.markdown(PADDED_OR_SLICED)
with st.expander("The cost model"):
    elements.markdown(THE_MODEL)
    if (constants := fitted(BMC["growth"].displayed().state)) is not None:
        metrics(fit_measures(constants), "fit")
experiments()
st.caption(PAPER)
session.draw_fragments()
