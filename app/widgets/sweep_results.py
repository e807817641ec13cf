"""A sweep on the Tune page: which one is shown, its heat map by cost and gain, and one of its
settings, whose cells can be opened on Explore. Also a threshold for a target number of paths or
tokens: the pilot, and what it predicts.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import streamlit as st

from app.server import model_cache
from app.server.store import SWEEPS, default_sweep_store
from app.state import session, slot, tab
from app.state.session import KEPT
from app.state.slot import PILOT, Entry
from app.widgets import controls, model_choice, sweep_editor
from app.widgets.elements import (
    draw_chart,
    metrics,
    plain,
    show_problems,
    start_button,
    stop_button,
)
from app.widgets.open_menu import Gallery, upload
from app.widgets.setting_widgets import choose_one
from eab import token_text
from eab.config import SETTINGS, BranchingConfig
from eab.errors import ConfigError
from eab.formatting import as_sentence, excerpt
from eab.labs.jobs import sweep_job
from eab.labs.tuning.frontier import (
    HEADINGS,
    OTHER_SEEDS,
    PILOT_SEEDS,
    THRESHOLDS,
    SettingPoint,
    Wanted,
    best_setting,
    measured,
    pilot_config,
    recommend,
    setting_of,
    setting_points,
    varying,
)
from eab.labs.tuning.grid import COSTS, GAINS, Cell, Grid, Quantity
from eab.labs.tuning.report import TuningReport
from eab.token_text import visible

_OPEN: Final = "open_sweep"  # key of the popover
_SHOWN: Final = "tune_shown"
MAX_UPLOAD_MIB: Final = 16


def draw_open(displayed: Entry[TuningReport]) -> None:
    """Draw the sweep's name, how much of it has run, and a button for the list, which is drawn only
    while it is open.
    """
    report = displayed.state
    part = f": {report.made}" if report.missing else ""
    name = plain(token_text.visible(slot.displayed_name()))
    with st.container(horizontal=True, vertical_alignment="center", width="content"):
        st.caption(f"**{name}{part}**", width="content")
        popover = st.popover("Open", icon=":material/folder_open:", on_change="rerun", key=_OPEN)
    if not popover.open:
        return
    with popover:
        own, saved, file = st.tabs(["This tab", "Saved sweeps", "Sweep file"])
        with own:
            _of_this_tab(report)
        with saved:
            _SAVED.draw(report if report.cells else None, slot.displayed_name())
        with file:
            upload("Open a sweep file", "gz", "tune_upload", slot.open_file, MAX_UPLOAD_MIB)


def _of_this_tab(report: TuningReport) -> None:
    st.session_state[_SHOWN] = slot.displayed_name()
    st.radio("Sweeps of this tab", slot.names(), key=_SHOWN, on_change=_show)
    if report.plan is not None:
        st.button(
            "Use its settings",
            on_click=sweep_editor.fill_from,
            args=(report.plan,),
            icon=":material/tune:",
            key="tune_use_plan",
            help="Sets the controls of this page to the settings and prompts of this sweep.",
        )


def _show() -> None:
    slot.show(st.session_state[_SHOWN])


@session.errors_as_message()
def _open_saved() -> None:
    sweep_id = st.session_state[_SAVED.chosen]
    if sweep_id is not None:
        slot.open_saved(sweep_id)


_SAVED: Final[Gallery[TuningReport]] = Gallery(SWEEPS, default_sweep_store, _open_saved)


_KEYS: Final = {"Cost": "tune_cost", "Gain": "tune_gain"}
_ACROSS, _DOWN = "tune_across", "tune_down"
# The first two of these that vary are the axes of the heat map.
_PREFERRED: Final = ("entropy_threshold", "max_paths", "branch_factor", "policy")


def chosen_quantity(label: str, cells: Sequence[Cell]) -> Quantity:
    """The chosen "Cost" or "Gain"; at first, and if no cell knows it, one that some cell knows."""
    among, key = _known(label, cells), _KEYS[label]
    if st.session_state.get(key) not in among:
        st.session_state[key] = next(iter(among))
    return among[st.session_state[key]]


def choose_quantity(label: str, cells: Sequence[Cell]) -> None:
    """Draw the choice of the "Cost" or "Gain"; only those that some cell knows are offered."""
    among = _known(label, cells)
    st.selectbox(
        label,
        list(among),
        format_func=lambda name: among[name].label,
        key=_KEYS[label],
        help=" ".join(f"{quantity.label}: {quantity.help}" for quantity in among.values()),
    )


def _known(label: str, cells: Sequence[Cell]) -> dict[str, Quantity]:
    among = COSTS if label == "Cost" else GAINS
    known = {
        name: quantity
        for name, quantity in among.items()
        if any(measured(cell, quantity) is not None for cell in cells)
    }
    return known or among


def draw_heat_map(
    cells: Sequence[Cell], gain: Quantity, points: Sequence[SettingPoint], key: str, white: bool
) -> None:
    """Draw the heat map and, below it, the choice of its axes, unless cells are still running: then
    there are no `points` to click.
    """
    from eab.labs.tuning import pictures

    every = setting_points(cells, gain, gain, partial=True)
    place = {point.config: number for number, point in enumerate(points)}
    chart = st.container()
    with st.popover("Axes", icon=":material/grid_on:") if points else st.container():
        across, down, shown = _axes(every, best_setting(points, gain).config if points else None)

    def clicked(number: int) -> None:
        if shown[number].config in place:
            choose_setting(place[shown[number].config])

    same = [name for name in varying(point.config for point in every) if name not in (across, down)]
    drawn = f"{key}-{gain.column}-{len(cells)}-{across}-{down}-{len(shown)}"
    with chart:
        draw_chart(
            "",
            f"{gain.label} with {pictures.setting_words(shown[0].config, same)}."
            if same and shown
            else f"{gain.label} of each combination.",
            pictures.heat_figure(shown, gain, across, down),
            "heat-map",
            f"{drawn}-{shown[0].config if shown else ''}",
            white,
            on_click=clicked if points else None,
        )


def _axes(
    points: Sequence[SettingPoint], best: BranchingConfig | None
) -> tuple[str, str, list[SettingPoint]]:
    """The axes of the heat map, and its points with other settings fixed, at first as in `best`."""
    menu = best is not None
    names = varying(point.config for point in points) or ["entropy_threshold"]
    ordered = sorted(names, key=_PREFERRED.index) if set(names) <= {*_PREFERRED} else names
    across = _one_of("Across", _ACROSS, ordered, menu)
    rest = [name for name in ordered if name != across]
    down = _one_of("Down", _DOWN, rest, menu) if rest else ""
    shown = [*points]
    for name in rest:
        if name != down:
            values = sorted({getattr(point.config, name) for point in shown})
            fixed = values[0] if best is None else _fixed(name, values, getattr(best, name))
            shown = [point for point in shown if getattr(point.config, name) == fixed]
    return across, down, shown


def _one_of(label: str, key: str, names: Sequence[str], menu: bool) -> str:
    return choose_one(label, names, key, lambda name: SETTINGS[name].label) if menu else names[0]


def _fixed(name: str, values: Sequence[Any], best: Any) -> Any:
    from eab.labs.tuning.pictures import value_words

    key = f"tune_fixed_{name}"
    if best in values and st.session_state.get(key) not in values:
        st.session_state[key] = best
    written = partial(value_words, name)
    return choose_one(f"{SETTINGS[name].label} is", values, key, written)


EXPLORE: Final = "../pages/explore.py"
_SETTING, _PROMPT, _SEED = (f"tune_cell_{part}" for part in ("setting", "prompt", "seed"))


def choose_setting(number: int) -> None:
    """Choose the setting with this number; for clicks in the heat map."""
    st.session_state[_SETTING] = number


def draw_cell(points: Sequence[SettingPoint], cells: Sequence[Cell], model_name: str) -> None:
    """Draw the choice of a cell, and its buttons."""
    from eab.labs.tuning.pictures import setting_words

    names = varying(point.config for point in points)
    labels = [setting_words(point.config, names) for point in points]
    prompts = {cell.prompt_id: cell.prompt for cell in sorted(cells, key=_prompt_order)}
    seeds = sorted({cell.seed for cell in cells})
    settings = range(len(points))
    with st.container(key="tune_cell"):
        left, middle, right = st.columns([5, 4, 2])
    title = "Setting (or click it in the chart)"
    number = choose_one(title, settings, _SETTING, labels.__getitem__, left)
    asked = choose_one(
        "Prompt", [*prompts], _PROMPT, lambda name: excerpt(visible(prompts[name]), 60), middle
    )
    choose_one("Seed", seeds, _SEED, str, right)
    missing = model_cache.missing(model_name)
    chosen = _found(cells, points[number], asked)
    if chosen is None:
        st.text("This cell has not run yet.")
        return
    metrics(_measures(chosen), "cell")
    if chosen.made == "resimulated":
        st.caption("Resimulated from the run at a lower threshold, without the model.")
    with st.container(horizontal=True, key="tune_cell_buttons"):
        opened = st.button(
            "Open its tree",
            on_click=_open_tree,
            args=(chosen, model_name),
            icon=":material/account_tree:",
            key="tune_open",
            disabled=bool(missing),
            help=missing or "Repeats this run on Explore; the same seed gives the same tree.",
        )
        use_button("tune_use", chosen.prompt, chosen.config, model_name)
    if opened and not session.message():
        st.switch_page(EXPLORE)


def _prompt_order(cell: Cell) -> tuple[int, str]:
    """The order of the prompts in their set; cells are listed in the order in which they end."""
    return len(cell.prompt_id), cell.prompt_id


def _found(cells: Sequence[Cell], point: SettingPoint, prompt: str) -> Cell | None:
    seed = st.session_state[_SEED]
    ours = (cell for cell in cells if cell.prompt_id == prompt and cell.seed == seed)
    return next((cell for cell in ours if setting_of(cell) == point.config), None)


def _measures(cell: Cell) -> dict[str, str]:
    return {
        "Paths": f"{cell.paths:,}",
        "Forks": f"{cell.forks:,}",
        "Tokens": f"{cell.tokens:,}",
        "Distinct answers": f"{cell.distinct_answers:,}",
        "Probability seen": f"{cell.probability_seen:.1%}",
    }


@session.errors_as_message()
def _open_tree(cell: Cell, model_name: str) -> None:
    tab.current()  # gives a new tab its first run before another one is started
    tab.start(cell.prompt, cell.config, model_name)
    controls.fill_from(cell.prompt, cell.config, model_name)


def use_button(key: str, prompt: str, config: BranchingConfig, model_name: str) -> None:
    """Draw a button that sets Explore's controls and opens it."""
    if st.button(
        "Use these settings",
        on_click=_use,
        args=(prompt, config, model_name),
        icon=":material/tune:",
        key=key,
        help="Opens Explore with these settings and this prompt.",
    ):
        st.switch_page(EXPLORE)


def _use(prompt: str, config: BranchingConfig, model_name: str) -> None:
    session.clear()
    tab.current()  # gives a new tab its first run before its widgets are set
    controls.fill_from(prompt, config, model_name)


_TARGET, _NUMBER = "tune_wanted", "tune_wanted_number"
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


def ensure_target() -> None:
    """Give every widget without a value its starting value."""
    st.session_state.setdefault(_TARGET, "paths")
    st.session_state.setdefault(_NUMBER, 12)


def draw_recommender(piloting: bool) -> None:
    """Draw the recommender; `session.watch` says when to read what is active."""
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
        _recommended(cells, pilot.key, pilot.state.model_name)
    with st.expander("How it works"):
        st.markdown(HOW_IT_WORKS)


def _bar(active: bool) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="pilot_bar"):
        with st.container(width=200):
            sweep_editor.choose_prompts(sweep_editor.PILOT_SET)
        st.segmented_control("Target", ["paths", "tokens"], key=_TARGET, required=True, **KEPT)
        st.number_input("Per run", 1, 10_000, key=_NUMBER, width=96, **KEPT)
        with st.container(width=118):
            words = "Run the pilot on these prompts."
            missing = controls.model_missing()
            start_button("Predict", "tune_pilot_start", missing, words, active, _predict)
        with st.container(width=76):
            stop_button("tune_pilot_stop", PILOT.stop, active)


def _wanted() -> tuple[Wanted, float]:
    kind: Wanted = "tokens" if st.session_state[_TARGET] == "tokens" else "paths"
    return kind, float(st.session_state[_NUMBER])


@session.errors_as_message()
def _predict() -> None:
    config = pilot_config(sweep_editor.base(), *_wanted())
    grid = Grid({"entropy_threshold": THRESHOLDS}, config, _SEEDS)
    asked = sweep_editor.prompts(sweep_editor.PILOT_SET)
    PILOT.start(sweep_job("pilot", grid, asked, model_choice.name()))


def _recommended(cells: Sequence[Cell], key: str, model_name: str) -> None:
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
    draw_chart("", words, figure, "pilot", f"{key}-{wanted}-{number}-{len(cells)}")
    first = min(cells, key=lambda cell: (len(cell.prompt_id), cell.prompt_id))
    use_button("tune_use_recommended", first.prompt, advice.config, model_name)
