"""One setting of a sweep, chosen in the heat map or in a list, and what can be done with its cells:
open a cell's tree, or use its settings.
"""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from app.server import model_cache
from app.state import status, tab
from app.widgets import controls
from app.widgets.glossary import plain
from app.widgets.setting_widgets import choose_one
from eab.config import BranchingConfig
from eab.formatting import counted, excerpt
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.frontier import SettingPoint, setting_of, varying
from eab.token_text import visible

EXPLORE: Final = "../pages/explore.py"
_SETTING, _PROMPT, _SEED = (f"tune_cell_{part}" for part in ("setting", "prompt", "seed"))


def choose(number: int) -> None:
    """Choose the setting with this number; for clicks in the heat map."""
    st.session_state[_SETTING] = number


def draw(points: Sequence[SettingPoint], cells: Sequence[Cell], model_name: str) -> None:
    """Draw the choice of a cell, and its buttons."""
    from eab.labs.tuning.sentences import setting_words

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
    st.caption(plain(_words(chosen)))
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
    if opened and not status.message():
        st.switch_page(EXPLORE)


def _prompt_order(cell: Cell) -> tuple[int, str]:
    """The order of the prompts in their set; cells are listed in the order in which they end."""
    return len(cell.prompt_id), cell.prompt_id


def _found(cells: Sequence[Cell], point: SettingPoint, prompt: str) -> Cell | None:
    seed = st.session_state[_SEED]
    ours = (cell for cell in cells if cell.prompt_id == prompt and cell.seed == seed)
    return next((cell for cell in ours if setting_of(cell) == point.config), None)


def _words(cell: Cell) -> str:
    made = "resimulated from the run at a lower threshold" if cell.made != "run" else "run"
    return (
        f"This cell ({made}): {counted(cell.paths, 'path')}, {counted(cell.forks, 'fork')}, "
        f"{counted(cell.tokens, 'token')}, {counted(cell.distinct_answers, 'distinct answer')}, "
        f"probability seen {cell.probability_seen:.1%}."
    )


@status.errors_as_message()
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
    status.clear()
    tab.current()  # gives a new tab its first run before its widgets are set
    controls.fill_from(prompt, config, model_name)
