"""A threshold for a target number of paths or tokens: the pilot, the prediction, the check."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from app.state import status
from app.state.tuning import CHECK, PILOT
from app.widgets import controls, model_choice, sweep_cells, sweep_editor
from app.widgets.charts import draw
from app.widgets.setting_widgets import KEPT
from app.widgets.status_line import show_problems, start_button, stop_button
from eab.errors import ConfigError
from eab.formatting import as_sentence
from eab.labs.jobs import sweep_job
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.frontier import setting_of
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.recommendation import (
    CHECK_HEADINGS,
    CHECK_SEEDS,
    PILOT_SEEDS,
    THRESHOLDS,
    Recommendation,
    Wanted,
    check_rows,
    measured_means,
    pilot_config,
    recommend,
    recommendation_sentence,
)

_KIND, _NUMBER = "tune_wanted", "tune_wanted_number"
_PILOT_SEEDS: Final = tuple(range(1, PILOT_SEEDS + 1))
_CHECK_SEEDS: Final = tuple(range(1001, 1001 + CHECK_SEEDS))  # different from the pilot's
HOW_IT_WORKS: Final = f"""
The pilot runs your prompts with {PILOT_SEEDS} seeds at {len(THRESHOLDS)} thresholds, from
{THRESHOLDS[0]:g} nats upwards. If the path limit dropped no branches, a run at a higher threshold
follows exactly from the run at the lowest threshold, without the model. Then the pilot adds
thresholds between the two whose means are nearest to your number, one above and one below, until a
mean is within 3% of your number, or the two thresholds differ by less than that. With few prompts,
the number of paths may jump from one threshold to the next; then none gives your number, and the
page shows the numbers on both sides.

The mean over the prompts is taken per seed. The spread between the seeds gives the interval for the
mean of {CHECK_SEEDS} other seeds. *Check* runs these, so that you see both numbers.
"""


def ensure_defaults() -> None:
    """Give every widget without a value its starting value."""
    st.session_state.setdefault(_KIND, "paths")
    st.session_state.setdefault(_NUMBER, 12)


def show(piloting: bool, checking: bool) -> None:
    """Draw the recommender; `polling.watch` says when to read what is active."""
    active = piloting or checking
    _bar(active)
    sweep_editor.own_prompts(sweep_editor.PILOT_SET)
    PILOT.watch(piloting)
    CHECK.watch(checking)
    show_problems(PILOT.current(), CHECK.current())
    pilot = PILOT.displayed()
    with pilot.locked:
        cells = [*pilot.state.cells]
    if not cells:
        st.info("Press Predict. A pilot of a few short runs finds the threshold for this target.")
    elif not piloting:
        _result(cells, pilot.key, pilot.state.model_name, checking)
    with st.expander("How it works"):
        st.markdown(HOW_IT_WORKS)


def _bar(active: bool) -> None:
    widths = [4.1, 3, 1.9, 2.2, 1.8]  # all labels fit into a window of 1024 pixels
    prompts, kind, number, predict, stop = st.columns(widths, vertical_alignment="bottom")
    with prompts:
        sweep_editor.choose_prompts(sweep_editor.PILOT_SET)
    with kind:
        st.segmented_control("Target", ["paths", "tokens"], key=_KIND, required=True, **KEPT)
    with number:
        st.number_input("Per run", 1, 10_000, key=_NUMBER, **KEPT)
    with predict:
        words = "Run the pilot on these prompts."
        missing = controls.model_missing()
        start_button("Predict", "tune_pilot_start", missing, words, active, _predict)
    with stop:
        stop_button("tune_pilot_stop", _stop, active)


def _stop() -> None:
    PILOT.stop()
    CHECK.stop()


def _wanted() -> tuple[Wanted, float]:
    kind: Wanted = "tokens" if st.session_state[_KIND] == "tokens" else "paths"
    return kind, float(st.session_state[_NUMBER])


@status.errors_as_message()
def _predict() -> None:
    target = _wanted()
    config = pilot_config(sweep_editor.base(), *target)
    grid = Grid({"entropy_threshold": THRESHOLDS}, config, _PILOT_SEEDS)
    asked = sweep_editor.prompts(sweep_editor.PILOT_SET)
    PILOT.start(sweep_job("pilot", grid, asked, model_choice.name(), target=target))


def _result(cells: Sequence[Cell], key: str, model_name: str, checking: bool) -> None:
    from eab.figures.tables import text_table
    from eab.labs.tuning.pictures import pilot_figure

    try:
        advice = recommend(cells, *_wanted())
    except ConfigError as error:
        st.info(as_sentence(str(error)))
        return
    check = CHECK.displayed()
    with check.locked:
        checked = [cell for cell in check.state.cells if _is_check(cell, advice, cells)]
    measured = {} if checking else measured_means(checked)
    draw(
        "",
        recommendation_sentence(advice),
        pilot_figure(cells, advice),
        "pilot",
        f"{key}-{advice.wanted}-{len(cells)}",
    )
    st.table(text_table(check_rows(advice, measured), CHECK_HEADINGS))
    with st.container(horizontal=True, key="tune_recommended"):
        st.button(
            "Check",
            on_click=_check,
            args=(advice, cells, model_name),
            icon=":material/fact_check:",
            disabled=checking,
            key="tune_check",
            help=f"Runs this threshold with {CHECK_SEEDS} seeds that the pilot did not use.",
        )
        first = min(cells, key=lambda cell: (len(cell.prompt_id), cell.prompt_id))
        sweep_cells.use_button("tune_use_recommended", first.prompt, advice.config, model_name)


def _is_check(cell: Cell, advice: Recommendation, pilot: Sequence[Cell]) -> bool:
    same = setting_of(cell) == advice.config
    return same and cell.prompt in {each.prompt for each in pilot}


def _check(advice: Recommendation, pilot: Sequence[Cell], model_name: str) -> None:
    status.clear()
    prompts = {
        cell.prompt_id: TuningPrompt(cell.prompt_id, Question(cell.prompt, (), {}, cell.group))
        for cell in pilot
    }
    grid = Grid({}, advice.config, _CHECK_SEEDS)
    CHECK.start(sweep_job("check", grid, [*prompts.values()], model_name))
