"""BMC: how many spare rows to allocate at a time. Your run at any r, the cost model, and
experiments made here.
"""

from typing import Final

import streamlit as st

from app.server import model_cache
from app.server.live_run import LiveReport
from app.state import measurements, tab
from app.widgets import controls
from app.widgets.charts import downloads, draw
from app.widgets.markdown import plain
from eab.bmc.demand import Demand, demand_of, predicted_overhead
from eab.bmc.results import Experiment, Report, dumps
from eab.board.layout import shorten
from eab.caches.growth import CostModel, auto_growth_rule
from eab.config import AUTO
from eab.figures.captions import ENDINGS
from eab.token_text import visible

ROWS: Final = (256, 512, 1024, 2048)
CURVE: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
IN_SHORT = """
A KV cache grows by a row per token. A tensor cannot grow, so a longer one is allocated and the rows are copied: at
every step, that is r = 1, and the copies grow with the square of the length. Allocating all rows at the start copies
nothing, but a kernel with fixed shapes visits all of them at every step, the empty ones under a mask. **BMC**
(Ramachandran et al., [arXiv 2511.12031](https://arxiv.org/abs/2511.12031)) allocates r steps' worth of rows at a time:
some copies, some spare rows.
"""
PADDED_OR_SLICED = """
Spare rows cost compute only if the kernel visits them. The tree cache can do both:

- **sliced** (what this engine uses unless you choose otherwise): attention ends at the last row in use. Spare rows then
  cost memory and nothing else; `auto` grows by a quarter of the rows in use. Shapes change at every step, which plain
  kernels do not mind.
- **padded**: attention visits every row that the tensors hold, the spare ones under the mask. Captured passes (CUDA
  graphs) need this: their shapes are fixed until the tensors grow. The balance of copies and spare rows is real here,
  and `auto` chooses r at each growth from the constants fitted on this machine.

Either way a mask is needed as soon as the text has forked: the rows that one path sees are scattered among those of the
others. Both give the same tokens.
"""
THE_MODEL = r"""
With *n* rows in use a growth costs $k_c n + A$ and happens every *r* steps; a spare row adds $k_a$ to a step, and on
average $(r-1)/2$ are spare. With *m* rows kept per step, *N* rows to write after a prompt of *P*:

$$r^* = \frac{1}{m}\sqrt{\frac{m\,(k_c (N + 2P) + 2A)}{k_a}}
\qquad r(n) = \frac{1}{m}\sqrt{\frac{2m\,(k_c n + A)}{k_a}}$$

The second form asks only how long the text is now; `auto` uses it, because a path may end at any step. The formula is
derived here (`eab/caches/growth.py`); the paper's own constants are not used.
"""
PAPER = (
    "The paper's own numbers, from its abstract (arXiv 2511.12031): up to 3.2 times the throughput of Hugging Face on "
    "average without speculation, up to 1.39 times on top of speculative decoding, up to 1.36 and 2.29 times that of "
    "vLLM and DeepSpeed. Other models, machines and lengths: nothing on this page repeats them. What is above was "
    "measured where it says."
)
# title, what it does, what to expect
EXPERIMENTS: Final[dict[Experiment, tuple[str, str]]] = {
    "growth": ("Sensitivity to r", "The KV part of writing many rows, at every r; about a minute."),
    "lengths": ("Copy or compute", "One step at r = 1, from 64 to 4,096 rows; seconds."),
    "rejection": (
        "Rejected drafts",
        "Drafts in the spare rows, verified by the model; about a minute.",
    ),
    "sizes": ("Other model sizes", "Is the predicted r* good for other shapes? About a minute."),
    "memory": ("Memory", "What the tensors hold, by r and length; seconds."),
}


def start(experiment: Experiment) -> None:
    measurements.start(experiment, int(st.session_state.bmc_rows), controls.model_name())


def progress(live: LiveReport) -> tuple[float, str]:
    """How far a measurement is, as a share and in words."""
    if (waits := tab.not_moving(live)) is not None:
        return waits
    with live.lock:
        return min(1.0, live.state.progress.share), live.state.progress.words


def your_run() -> None:
    """The run of the page Explore at another r, read from its events."""
    from eab.figures import bmc

    shown = tab.shown().picture
    with tab.held_still(shown):
        demand, prompt = demand_of(shown.run) if shown.run is not None else None, shown.prompt or ""
    st.subheader("Your run at any r")
    if demand is None:
        st.info(
            "The run on the page Explore has no rows of a tree cache that can be counted again. Run it with cache tree "
            "and without a drafter, then come back."
        )
        return
    st.caption(
        f"The run on the page Explore: “{plain(shorten(visible(prompt), 90))}”. Moving r reads it again; nothing runs."
    )
    costs = fitted()
    r = st.select_slider("r: rows for so many steps at a time", (AUTO, *CURVE), key="bmc_r")
    steps = demand.at(r if isinstance(r, int) else auto_growth_rule(costs))
    draw("", bmc.strip_sentence(steps, r), bmc.strip_figure(steps), "bmc-strip", str(r))
    if costs is not None:
        curve = {one: overhead_of(demand, one, costs) for one in CURVE}
        figure = bmc.run_curve_figure(curve, r if isinstance(r, int) else None)
        draw("", bmc.run_curve_sentence(curve), figure, "bmc-run-curve", str(r))
    take_home_run(demand, costs)


def overhead_of(demand: Demand, r: int, costs: CostModel) -> tuple[float, float]:
    return predicted_overhead(costs, demand.at(r), [need.paths for need in demand.needs])


def fitted() -> CostModel | None:
    found = measurements.PLACES["growth"].shown().picture.state.fitted
    return found.costs if found is not None else None


def take_home_run(demand: Demand, costs: CostModel | None) -> None:
    from eab.figures.tables import allocations_table

    st.download_button(
        "This run at every r (CSV)",
        lambda: allocations_table(demand, CURVE, costs).to_csv(index=False),
        "run-by-r.csv",
        key="download-run-by-r.csv",
        on_click="ignore",
    )


def experiments() -> None:
    """A button for each, then the one that is looked at."""
    going, missing = measurements.going(), model_cache.missing(controls.model_name())
    st.subheader("Measure it here")
    left, right = st.columns([3, 1])
    with left:
        st.segmented_control(
            "Rows per run",
            ROWS,
            key="bmc_rows",
            required=True,
            help="More rows show more, and take longer.",
        )
    right.button(
        "Stop", on_click=measurements.stop, disabled=going is None, width="stretch", key="bmc_stop"
    )
    for column, (name, (title, what)) in zip(
        st.columns(len(EXPERIMENTS)), EXPERIMENTS.items(), strict=True
    ):
        busy = going is not None or bool(missing)
        column.button(
            title,
            on_click=start,
            args=(name,),
            disabled=busy,
            width="stretch",
            key=f"run_{name}",
            help=missing or what,
        )
    tab.watch(measurements.going, progress, going is not None)
    for name in EXPERIMENTS:
        measurements.PLACES[name].note_in_url()
        shown = measurements.PLACES[name].shown().picture
        with shown.held_still:
            one_experiment(name, shown.state, shown.key)


def one_experiment(name: Experiment, report: Report, key: str) -> None:
    """What it found, with its origin."""
    from eab.figures import bmc
    from eab.figures.tables import points_table

    title, what = EXPERIMENTS[name]
    st.subheader(title)
    began = report.began
    if began is not None:
        origin = "Recorded" if key == "bundled" else "Measured here"
        st.caption(
            f"{origin}: {plain(began.model)}, {plain(began.dtype)}, on {plain(began.machine)}. {what}"
        )
    shown = bmc.EXPERIMENT_FIGURES[name]
    draw("", shown.sentence(report), shown.figure(report), f"bmc-{name}", key)
    if report.fitted is not None and name == "growth":
        with st.expander("The fitted constants"):
            draw("", bmc.fit_sentence(report.fitted.costs), bmc.fit_figure(report), "bmc-fit", key)
    downloads(
        [
            ("Points (CSV)", f"bmc-{name}.csv", lambda: points_table(report).to_csv(index=False)),
            ("Report (JSON)", f"bmc-{name}.json", lambda: dumps(report)),
        ]
    )


controls.ensure_defaults()
st.session_state.setdefault("bmc_r", 16)
st.session_state.setdefault("bmc_rows", 512)

st.subheader("How many rows at a time?")
st.markdown(IN_SHORT)
notices = st.container()
for experiment, broken in measurements.broken_off().items():
    reason, message = broken.ending
    say = notices.error if reason == "failed" else notices.caption
    say(plain(f"{EXPERIMENTS[experiment][0]}: {ENDINGS[reason]}. {visible(message)}"))
with st.expander("Padded or sliced"):
    st.markdown(PADDED_OR_SLICED)
with st.expander("The cost model"):
    st.markdown(THE_MODEL)
with st.sidebar:
    controls.choose_model()
your_run()
experiments()
st.caption(PAPER)
tab.draw_what_polls()
