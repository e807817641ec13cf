"""Tune: which settings give the best results at the lowest cost, and a threshold for a target
number of paths or tokens.
"""

from collections.abc import Callable, Sequence
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.server import model_cache
from app.state import session, slot
from app.state.slot import PILOT, SWEEP, Entry, note_in_url
from app.widgets import controls, elements, model_choice, sweep_editor, sweep_results
from app.widgets.elements import (
    csv_file,
    downloads,
    metrics,
    origin,
    page_controls,
    plain,
    show_problems,
    start_button,
    stop_button,
    white_background,
)
from eab.errors import EabError
from eab.formatting import as_sentence
from eab.labs.jobs import sweep_job
from eab.labs.tuning.frontier import SettingPoint, best_setting, setting_of, setting_points
from eab.labs.tuning.grid import Cell, Quantity, cells_table
from eab.labs.tuning.report import TuningReport, dumps
from eab.lessons import bundled_runs

VIEW: Final = "view"  # the URL parameter of the open tab
SETTINGS_TAB, THRESHOLD_TAB = "Sweep of settings", "Threshold for your prompts"
WORTH_TAB: Final = "Finding wrong answers"
TABS: Final = {"threshold": THRESHOLD_TAB, "worth": WORTH_TAB}  # by their values in the URL
REDRAW_SECONDS: Final = 2.0  # Plotly redraws the whole chart
HOW_IT_WORKS: Final = """
A **cell** is one run: a combination of settings (below: a *setting*), a prompt and a seed. The mean
over the prompts is taken per seed, and the spread between the seeds gives the interval (95%,
Student's t; ± is half of it, and one seed has none). Two settings differ if the interval of their
difference, paired by seed, does not contain 0; otherwise the table says "no difference measured".

The **Pareto front** contains the settings that no other setting dominates: none costs no more,
gains no less, and is better in one of the two. **Independent sampling** is the baseline: ordinary
samples at the same cost, interpolated between the path limits that were tried, and never
extrapolated.

If the path limit dropped no branches, a cell at a higher threshold follows exactly from the run at
the lowest threshold, without the model. Such cells are resimulated and have no time.
"""


def bar(cells: Sequence[Cell], can_go_on: bool) -> None:
    """Draw the prompts, the cost and the gain, Run, Stop and perhaps Resume."""
    widths = [5, 5, 5.6, *[2.4] * 3] if can_go_on else [5, 5, 6, 2.6, 2.6]
    with st.container(key="tune_bar"):
        prompts, costs, gains, run, *go_on, stop = st.columns(widths, vertical_alignment="bottom")
    with prompts:
        sweep_editor.choose_prompts()
    with costs:
        sweep_results.choose_quantity("Cost", cells)
    with gains:
        sweep_results.choose_quantity("Gain", cells)
    with run:
        words = "Run every cell of this sweep."
        start_button("Run", "tune_start", controls.model_missing(), words, sweeping, start)
    with stop:
        stop_button("tune_stop", SWEEP.stop, sweeping)
    for place in go_on:
        resume_button(place)
    sweep_editor.own_prompts()


def resume_button(place: DeltaGenerator) -> None:
    """Draw the button that resumes the sweep on the page."""
    missing = model_cache.missing(slot.displayed_model())
    place.button(
        "Resume",
        on_click=resume,
        key="tune_resume",
        disabled=bool(missing),
        help=missing
        or "Run the missing cells of this sweep, with the settings that it was started with.",
        width="stretch",
    )


@session.errors_as_message()
def resume() -> None:
    if (plan := SWEEP.displayed().state.plan) is not None:
        sweep_editor.check_plan(plan)
    slot.resume()


@session.errors_as_message()
def start() -> None:
    chosen, asked = sweep_editor.grid(), sweep_editor.prompts()
    sweep_editor.needs_words(chosen, asked, model_choice.name())  # raises if there are too many
    SWEEP.start(sweep_job("sweep", chosen, asked, model_choice.name()))


def needs() -> str:
    """How many cells Run makes, and about how long it takes; or what is wrong."""
    try:
        return sweep_editor.needs_words(
            sweep_editor.grid(), sweep_editor.prompts(), model_choice.name()
        )
    except EabError as error:
        return as_sentence(str(error))


def sweep() -> None:
    displayed = SWEEP.displayed()
    with displayed.locked:
        cells = [*displayed.state.cells]
        can_go_on = displayed.state.plan is not None and displayed.state.missing > 0
    cost, gain = (sweep_results.chosen_quantity(name, cells) for name in ("Cost", "Gain"))
    points = setting_points(cells, cost, gain)
    if not sweeping:
        slot.keep_ended()
        slot.note_saved_in_url()
        answer(displayed.state, points, gain)
    with page_controls():
        bar(cells, can_go_on and not sweeping)
        if not sweeping:
            with st.container(horizontal=True, vertical_alignment="center", key="tune_line"):
                st.caption(f"Run: {plain(needs())}")
                sweep_results.draw_open(displayed)
    show_problems(SWEEP.current())
    if sweeping:
        SWEEP.watch(sweeping)
        session.fragment(growing(gain), session.interval(REDRAW_SECONDS))
    else:
        results(displayed, points, cost, gain)
        SWEEP.watch(sweeping)
    with st.expander("How it works"):
        st.markdown(HOW_IT_WORKS)


def growing(gain: Quantity) -> Callable[[], None]:
    """A function that draws the heat map while the cells run, so that it fills in."""

    def draw_so_far() -> None:
        displayed = SWEEP.displayed()
        with displayed.locked:
            cells = [*displayed.state.cells]
        if cells:
            sweep_results.draw_heat_map(cells, gain, [], f"{displayed.key}-growing", False)

    return draw_so_far


def answer(report: TuningReport, points: Sequence[SettingPoint], gain: Quantity) -> None:
    """Draw the best setting, and a button that sets it on Explore."""
    from eab.labs.tuning import pictures

    with st.container(horizontal=True, vertical_alignment="center", key="tune_answer"):
        st.text(pictures.answer_sentence(points, gain))
        if points:
            best = best_setting(points, gain).config
            first = next(cell for cell in report.cells if setting_of(cell) == best)
            sweep_results.use_button("tune_use_best", first.prompt, best, report.model_name)


def results(
    displayed: Entry[TuningReport], points: Sequence[SettingPoint], cost: Quantity, gain: Quantity
) -> None:
    """Draw the heat map of a sweep that no longer changes, one of its cells, tables and files."""
    from eab.figures.tables import text_table
    from eab.labs.tuning import pictures

    report = displayed.state
    cells = report.cells
    if not cells:
        return
    chart = st.container()
    white = white_background()
    with chart:
        sweep_results.draw_heat_map(cells, gain, points, displayed.key, white)
        metrics(pictures.sweep_measures(points, cells), "sweep")
        origin(displayed.state.began, displayed.live is not None)
    if points:
        st.header("One cell")
        sweep_results.draw_cell(points, cells, report.model_name)
        st.header("All settings")
        with st.container(key="tune_settings"):
            st.table(text_table(pictures.setting_rows(points, cost, gain), pictures.HEADINGS))
    downloads(
        [
            csv_file("Cells", "cells.csv", cells_table, cells),
            ("Cells (Parquet)", "cells.parquet", lambda: cells_table(cells).to_parquet(None)),
            ("Sweep file", "sweep.json.gz", lambda: dumps(report)),
            csv_file("Settings", "settings.csv", pictures.settings_table, points, cost, gain),
        ]
    )


def worth() -> None:
    """Draw whether uncertainty scores find wrong answers: a recorded `eab evaluate`."""
    from eab.labs.tuning.evaluation_report import EVALUATION
    from eab.labs.tuning.pictures import evaluation_figure

    shown = Entry("recorded", bundled_runs.evaluation())
    white = white_background()
    elements.answer(EVALUATION, shown, white, evaluation_figure(shown.state))
    about = shown.state.about
    asked = f"{about['questions']} questions with known answers, {about['chances']} with known odds"
    origin(shown.state.began, False, f"{asked}. The command eab evaluate does this with yours.")
    elements.numbers(EVALUATION, shown)


controls.ensure_defaults()
sweep_editor.ensure_defaults()
sweep_results.ensure_target()
slot.follow_link()
sweeping = SWEEP.current().active  # before anything is drawn; see session.watch
piloting = PILOT.current().active
st.session_state.setdefault("tune_view", TABS.get(st.query_params.get(VIEW, ""), SETTINGS_TAB))

st.title("Which settings give the best results at the lowest cost?")
with st.sidebar:
    controls.choose_model()
    if st.session_state.tune_view != WORTH_TAB:
        sweep_editor.choose_ranges()
settings_tab, threshold_tab, worth_tab = st.tabs(
    [SETTINGS_TAB, THRESHOLD_TAB, WORTH_TAB], on_change="rerun", key="tune_view"
)
if threshold_tab.open:
    note_in_url({VIEW: "threshold"})
    with threshold_tab:
        sweep_results.draw_recommender(piloting)
elif worth_tab.open:
    note_in_url({VIEW: "worth"})
    with worth_tab:
        worth()
else:
    st.query_params.pop(VIEW, None)
    with settings_tab:
        sweep()
session.draw_fragments()
