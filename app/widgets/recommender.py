"""A threshold for a target number of paths or tokens: the pilot, and what it predicts."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from app.state import status
from app.state.tuning import PILOT
from app.widgets import controls, model_choice, sweep_editor, sweep_results
from app.widgets.charts import draw
from app.widgets.setting_widgets import KEPT
from app.widgets.status_line import show_problems, start_button, stop_button
from eab.errors import ConfigError
from eab.formatting import as_sentence
from eab.labs.jobs import sweep_job
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.frontier import (
    HEADINGS,
    OTHER_SEEDS,
    PILOT_SEEDS,
    THRESHOLDS,
    Wanted,
    pilot_config,
    recommend,
)
from eab.labs.tuning.grid import Grid

_KIND, _NUMBER = "tune_wanted", "tune_wanted_number"
_SEEDS: Final = tuple(range(1, PILOT_SEEDS + 1))
HOW_IT_WORKS: Final = f"""
The pilot runs your prompts with {PILOT_SEEDS} seeds at {len(THRESHOLDS)} thresholds, from
{THRESHOLDS[0]:g} to {THRESHOLDS[-1]:g} nats. If the path limit dropped no branches, a run at a
higher threshold follows exactly from the run at the lowest threshold, without the model. The
threshold whose mean is nearest to your number is recommended. With few prompts, the mean may jump
from one threshold to the next; the chart shows it.

The mean over the prompts is taken per seed. The spread between the seeds gives the interval for the
mean of {OTHER_SEEDS} other seeds.
"""


def ensure_defaults() -> None:
    """Give every widget without a value its starting value."""
    st.session_state.setdefault(_KIND, "paths")
    st.session_state.setdefault(_NUMBER, 12)


def show(piloting: bool) -> None:
    """Draw the recommender; `polling.watch` says when to read what is active."""
    _bar(piloting)
    sweep_editor.own_prompts(sweep_editor.PILOT_SET)
    PILOT.watch(piloting)
    show_problems(PILOT.current())
    pilot = PILOT.displayed()
    with pilot.locked:
        cells = [*pilot.state.cells]
    if not cells:
        st.info("Press Predict. A pilot of a few short runs finds the threshold for this target.")
    elif not piloting:
        _result(cells, pilot.key, pilot.state.model_name)
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
        stop_button("tune_pilot_stop", PILOT.stop, active)


def _wanted() -> tuple[Wanted, float]:
    kind: Wanted = "tokens" if st.session_state[_KIND] == "tokens" else "paths"
    return kind, float(st.session_state[_NUMBER])


@status.errors_as_message()
def _predict() -> None:
    config = pilot_config(sweep_editor.base(), *_wanted())
    grid = Grid({"entropy_threshold": THRESHOLDS}, config, _SEEDS)
    asked = sweep_editor.prompts(sweep_editor.PILOT_SET)
    PILOT.start(sweep_job("pilot", grid, asked, model_choice.name()))


def _result(cells: Sequence[Cell], key: str, model_name: str) -> None:
    from eab.figures.tables import text_table
    from eab.labs.tuning.pictures import pilot_figure

    wanted, number = _wanted()
    try:
        advice = recommend(cells, wanted, number)
    except ConfigError as error:
        st.info(as_sentence(str(error)))
        return
    st.table(text_table(advice.rows(), HEADINGS))
    figure = pilot_figure(cells, wanted, number, advice)
    words = f"{wanted.capitalize()} per run at each threshold; dashed: the target."
    draw("", words, figure, "pilot", f"{key}-{wanted}-{number}-{len(cells)}")
    first = min(cells, key=lambda cell: (len(cell.prompt_id), cell.prompt_id))
    sweep_results.use_button("tune_use_recommended", first.prompt, advice.config, model_name)
