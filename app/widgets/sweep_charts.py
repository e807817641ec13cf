"""The heat map of a sweep on the Tune page, and the choice of the cost and the gain."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import streamlit as st

from app.widgets import sweep_cells
from app.widgets.charts import draw
from app.widgets.setting_widgets import choose_one
from eab.config import SETTINGS, BranchingConfig
from eab.labs.tuning.cell import COSTS, GAINS, Cell, Quantity
from eab.labs.tuning.frontier import (
    SettingPoint,
    best_setting,
    measured,
    setting_points,
    varying,
)

_KEYS: Final = {"Cost": "tune_cost", "Gain": "tune_gain"}
_ACROSS, _DOWN = "tune_across", "tune_down"
# The first two of these that vary are the axes of the heat map.
_PREFERRED: Final = ("entropy_threshold", "max_paths", "branch_factor", "policy")


def chosen(label: str, cells: Sequence[Cell]) -> Quantity:
    """The chosen "Cost" or "Gain"; at first, and if no cell knows it, one that some cell knows."""
    among, key = _known(label, cells), _KEYS[label]
    if st.session_state.get(key) not in among:
        st.session_state[key] = next(iter(among))
    return among[st.session_state[key]]


def choose(label: str, cells: Sequence[Cell]) -> None:
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
    from eab.labs.tuning import pictures as tuning
    from eab.labs.tuning import sentences as tuning_words

    every = setting_points(cells, gain, gain, partial=True)
    place = {point.config: number for number, point in enumerate(points)}
    chart = st.container()
    with st.popover("Axes", icon=":material/grid_on:") if points else st.container():
        across, down, shown = _axes(every, best_setting(points, gain).config if points else None)

    def clicked(number: int) -> None:
        if shown[number].config in place:
            sweep_cells.choose(place[shown[number].config])

    same = [name for name in varying(point.config for point in every) if name not in (across, down)]
    drawn = f"{key}-{gain.column}-{len(cells)}-{across}-{down}-{len(shown)}"
    with chart:
        draw(
            "",
            tuning_words.heat_sentence(shown, gain, same),
            tuning.heat_figure(shown, gain, across, down),
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
    from eab.labs.tuning.sentences import value_words

    key = f"tune_fixed_{name}"
    if best in values and st.session_state.get(key) not in values:
        st.session_state[key] = best
    written = partial(value_words, name)
    return choose_one(f"{SETTINGS[name].label} is", values, key, written)
