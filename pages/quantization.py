"""Quantization: the model in every weight format, a run with such weights, what bounds a step."""

from dataclasses import replace
from functools import partial
from typing import Final

import streamlit as st

from app.state import session, tab
from app.state.slot import FORMATS, QUANTIZED, Entry
from app.widgets import board, controls, elements, model_choice
from app.widgets.elements import (
    downloads,
    metrics,
    origin,
    plain,
    quoted,
    show_problems,
    start_button,
    stop_button,
)
from eab.engine.job import continued_run_job
from eab.labs import quantization as results
from eab.labs.jobs import formats_job
from eab.labs.measurement import Report
from eab.labs.quantization import (
    RunPoint,
    missing_sentence,
    moved,
    roofline_chart,
    run_point,
    same_request,
)
from eab.run import RunState
from eab.weight_formats import AS_LOADED, WEIGHT_FORMATS, full_name, split_name

MEASURES: Final = (
    "Measures every format, alternating with the weights as loaded. Takes about a minute."
)
HOW_IT_WORKS: Final = """
A weight is stored as the number of the nearest level of a grid. Weights that share a **scale**
share the grid:

- **int8**: evenly spaced levels on both sides of 0; the largest magnitude of a row sets the scale.
- **int4**: evenly spaced levels from the smallest weight of a group to the largest; a *zero point*
  is stored in addition to the scale.
- **NF4**: 16 levels at the quantiles of a normal distribution: dense near 0, where most weights
  are (Dettmers et al., [arXiv 2305.14314](https://arxiv.org/abs/2305.14314)).

One large weight, an *outlier*, stretches the grid of all weights that share its scale. Smaller
groups limit the damage, but every group stores a scale. *Double quantization* also rounds the
scales.
"""


def whole_model(displayed: Entry[Report]) -> None:
    report = displayed.state
    elements.answer(results.FORMATS, displayed)
    measure_bar()
    prompt = f"Prompt: “{quoted(report.about.get('prompt', ''))}”"
    origin(report.began, displayed.live is not None, prompt)
    elements.numbers(results.FORMATS, displayed)
    if missing := missing_sentence(report):
        st.text(missing)


def measure_bar() -> None:
    """Draw the prompt, and the button that starts or stops the measurement."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    left.text_input("Prompt whose next token is compared", key="formats_prompt")
    with right:
        if active:
            stop_button("formats_stop", FORMATS.stop)
        else:
            missing = controls.model_missing(here=True)
            start_button("Measure", "formats_run", missing, MEASURES, on_start=start)


def base_model() -> str:
    """The name of the chosen model without its weight format."""
    return split_name(model_choice.name())[0]


@session.errors_as_message()
def start() -> None:
    FORMATS.start(formats_job(st.session_state.formats_prompt, base_model()))


def your_run() -> None:
    """Draw the run on Explore against the same run with weights in fewer bits."""
    explored = tab.displayed()
    st.header("Your run in fewer bits")
    run = explored.run if not explored.active else None
    if run is None:
        st.info("The run on the Explore page has not ended yet. Come back when it has.")
        return
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    formats = [name for name in WEIGHT_FORMATS if name != AS_LOADED]
    missing = model_choice.missing(run.started.model.name, here=True)
    left.selectbox("Format to compare", formats, key="quantized_weights")
    with right:
        if quantizing:
            stop_button("quantized_stop", QUANTIZED.stop)
        else:
            start_button(
                "Run", "quantized_run", missing, on_start=start_run, args=(run,), type="secondary"
            )
    QUANTIZED.watch(quantizing)
    displayed = QUANTIZED.displayed()
    with displayed.locked:
        other = displayed.state.run
        if other is None or not same_request(run, other):
            st.text("This prompt has no run in fewer bits yet. Choose a format and press Run.")
            return
        difference(run, other, f"{explored.key} {displayed.key}")


@session.errors_as_message()
def start_run(run: RunState) -> None:
    """Run it again with its model's weights in the chosen format."""
    started = run.started
    model_name = full_name(started.model.name, st.session_state.quantized_weights)
    QUANTIZED.start(
        continued_run_job(started, started.continued_tokens, started.config, model_name)
    )


def difference(a: RunState, b: RunState, key: str) -> None:
    from eab.board.messages import diff_message
    from eab.figures.tables import text_table

    forks, cards = moved(a, b), (a.started.model, b.started.model)
    metrics(results.moved_measures(forks), "moved")
    st.caption(
        f"A (solid line): {plain(cards[0].full_name)}, the run on Explore. B (dashed line): "
        f"{plain(cards[1].full_name)}. Prompt: “{quoted(a.started.prompt)}”"
    )
    board.mount(diff_message(a, b, key), key="quantized_diff")
    if rows := results.moved_rows(forks):
        st.table(text_table(rows[: results.SHOWN], results.HEADINGS))
        table = text_table(rows, results.HEADINGS)
        downloads([("Forks that moved (CSV)", "forks-moved.csv", table.to_csv)])


def roofline(displayed: Entry[Report]) -> None:
    """Draw what bounds the time of a step, with the run on Explore as a point."""
    point = own_point(displayed.state)
    chart = partial(roofline_chart, run=point)
    elements.answer(
        replace(results.ROOFLINE, chart=chart),
        replace(displayed, key=f"{displayed.key} {point}"),
        title="What limits the time of a step",
    )
    st.caption(
        "The bound counts only the weights: they are read from memory once per step and "
        "multiplied with every row, at the speed of the model's dtype. K and V, attention and "
        "Python take additional time. Weights in the processor's caches can be read faster."
    )
    if point is None:
        st.caption("Run this model on Explore on this machine to see your run as a point.")


def own_point(report: Report) -> RunPoint | None:
    """The run on Explore as a point, if it was made here with the model of the report."""
    explored = tab.displayed()
    with explored.locked:
        run = explored.run
        if run is None or explored.live is None or report.began is None:
            return None
        if run.started.model.name != report.began.model:
            return None
        return run_point(run)


controls.ensure_defaults()

current, displayed = FORMATS.current(), FORMATS.displayed()
active, quantizing = current.active, QUANTIZED.current().active
st.session_state.setdefault("formats_prompt", tab.displayed().asked.prompt or "Once upon a time")
st.session_state.setdefault("quantized_weights", "int4")

st.title("What is lost when weights are rounded?")
with st.sidebar:
    controls.choose_model(here=True)
FORMATS.watch(active)
show_problems(current, QUANTIZED.current())
with displayed.locked:
    whole_model(displayed)
your_run()
with st.expander("How it works"):
    elements.markdown(HOW_IT_WORKS)
with displayed.locked:
    roofline(displayed)
session.draw_fragments()
