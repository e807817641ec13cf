"""Start and Stop buttons of a long job."""

from collections.abc import Callable
from typing import Any

from app.widgets import controls


def start_and_stop(
    places: tuple[Any, Any],
    label: str,
    help: str,
    stem: str,
    active: bool,
    on_stop: Callable[[], None],
    on_start: Callable[[], None] | None = None,
    here: bool = False,
) -> bool:
    """Draw both buttons, Start off where the model is missing; returns whether it was pressed."""
    missing = controls.model_missing(here)
    pressed: bool = places[0].button(
        label,
        on_click=on_start,
        type="primary",
        icon=":material/play_arrow:",
        key=f"{stem}_start",
        disabled=active or bool(missing),
        help=missing or help,
        width="stretch",
    )
    places[1].button(
        "Stop", on_click=on_stop, disabled=not active, key=f"{stem}_stop", width="stretch"
    )
    return pressed
