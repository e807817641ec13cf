"""The widgets of the sidebar and the prompt: what to run, and with which settings.

The widgets of the settings are made from their declarations (eab.config). They offer what is useful
on a page; the engine checks every value again.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import streamlit as st

from app.server import model_cache
from app.widgets.markdown import plain
from eab.config import (
    SETTINGS,
    THRESHOLD_SCALES,
    BranchingConfig,
    DrafterName,
    ThresholdUnit,
)
from eab.events import RunStarted
from eab.settings import Buttons, Menu, NumberBox, Slider, Steps, Toggle

# What the page starts with where it differs from the library: unlikely paths do not branch, and a
# run ends within seconds.
START: Final = BranchingConfig(
    min_fork_weight=0.03, max_paths=16, max_new_tokens=48, kv_limit_mib=1024
)
START_THRESHOLDS: Final[dict[ThresholdUnit, float]] = {
    "nats": START.entropy_threshold,
    "normalised": 0.08,
    "quantile": 0.8,
}
# The settings that have a widget; the threshold has one per unit.
FIELDS: Final = tuple(name for name, declared in SETTINGS.items() if declared.widget is not None)
EMBEDDED, FOLDER, HUB = "Embedded", "Folder", "Hub"
KEPT: Final[Any] = {"persist_state": "session"}  # a value stays while its widget is not drawn
_VARIED_WITH: Final = {"drafter": ("drafter", "draft_length")}
# The pages that tell more about a setting.
_SEE: Final = {
    "cache": "Memory",
    "r": "BMC",
    "attention": "BMC",
    "draft_length": "Speculative decoding",
}


def ensure_defaults() -> None:
    """Give every widget without a value its starting value; Streamlit forgets undrawn widgets."""
    for name in FIELDS:
        st.session_state.setdefault(f"set_{name}", getattr(START, name))
    st.session_state.setdefault("set_model_kind", EMBEDDED)
    for unit, value in START_THRESHOLDS.items():
        st.session_state.setdefault(f"set_threshold_{unit}", value)


def fill_from(prompt: str | None, config: BranchingConfig | None, model: str) -> str:
    """Set the widgets to a run's prompt, settings and model.

    Returns:
        A sentence on the settings that the page cannot offer; empty if there are none.
    """
    if prompt is None or config is None:
        return ""
    state = st.session_state
    state.prompt = prompt
    _choose_model(model)
    for name in FIELDS:
        state[f"set_{name}"] = _offered(name, getattr(config, name))
    unit = config.threshold_unit
    slider = THRESHOLD_SCALES[unit].widget
    state[f"set_threshold_{unit}"] = slider.nearest(config.entropy_threshold)
    recorded = {name: getattr(config, name) for name in (*FIELDS, "entropy_threshold")}
    names = [f"{name} = {value}" for name, value in recorded.items() if settings()[name] != value]
    names += ["a system message"] if config.system else []
    return (
        f"This run used {', '.join(names)}, which the page does not offer. "
        "Run uses the nearest value."
        if names
        else ""
    )


def _offered(name: str, value: Any) -> Any:
    """The value that the widget of this setting offers, nearest to this one."""
    widget = SETTINGS[name].widget
    return value if widget is None else widget.nearest(value)


def _choose_model(name: str) -> None:
    """Set the widgets of the model to a name as `model_name` gives it."""
    if name == "embedded":
        st.session_state.set_model_kind = EMBEDDED
    elif name.startswith((".", "/", "~")) or "\\" in name or Path(name).is_dir():
        st.session_state.set_model_kind, st.session_state.set_model_folder = FOLDER, name
    else:
        st.session_state.set_model_kind, st.session_state.set_model_hub = HUB, name


def prompt_box() -> None:
    """Draw the box of the prompt; `prompt` reads it."""
    hint = "What should the model continue?"
    st.text_area(
        "Prompt", key="prompt", height=94, placeholder=hint, label_visibility="collapsed", **KEPT
    )


def sidebar(varied: str = "") -> None:
    """Draw all widgets of a run; `model_name` and `settings` read them.

    Args:
        varied: The setting that this page varies, so that there is nothing to choose.
    """
    choose_model()
    hidden = _VARIED_WITH.get(varied, (varied,))
    for group in dict.fromkeys(declared.group for declared in SETTINGS.values()):
        names = [name for name in FIELDS if SETTINGS[name].group == group and name not in hidden]
        if names:
            st.subheader(group)
        for name in names:
            _draw(name)
            if name == "threshold_unit":
                _draw_threshold()


def run_bar(on_run: Callable[[], None], on_stop: Callable[[], None], active: bool) -> None:
    """Draw the prompt, and beside it Run and Stop; Run is off where the model is missing.

    Args:
        on_run: Called when Run is pressed.
        on_stop: Called when Stop is pressed.
        active: Whether a run is going on.
    """
    missing = model_cache.missing(model_name())
    left, right = st.columns([5, 1])
    with left:
        prompt_box()
    with right:
        st.button(
            "Run",
            on_click=on_run,
            type="primary",
            icon=":material/play_arrow:",
            width="stretch",
            key="run_button",
            disabled=bool(missing),
            help=missing or None,
        )
        st.button(
            "Stop generation",
            on_click=on_stop,
            disabled=not active,
            width="stretch",
            key="stop_button",
        )
    if missing:
        st.info(f"Replay only: {plain(missing)}. Recorded runs still open.")


def prompt() -> str:
    """The prompt, as typed."""
    return str(st.session_state.prompt)


def model_name() -> str:
    """The chosen model, as a name for eab.models.loading."""
    kind = st.session_state.set_model_kind
    typed = {FOLDER: "set_model_folder", HUB: "set_model_hub"}
    return str(st.session_state.get(typed[kind], "")).strip() if kind in typed else "embedded"


def apply(widgets: dict[str, Any]) -> None:
    """Set these widgets, by their keys without `set_`; for callbacks."""
    for name, value in widgets.items():
        st.session_state[f"set_{name}"] = value


def settings() -> dict[str, Any]:
    """The settings of a BranchingConfig, as the widgets stand now.

    In a callback, the latest change is already in them.
    """
    state = st.session_state
    found = {name: getattr(START, name) for name in FIELDS}  # not every page draws them all
    found |= {name: chosen for name in FIELDS if (chosen := state.get(f"set_{name}")) is not None}
    found["kv_limit_mib"] = START.kv_limit_mib
    unit = found["threshold_unit"]
    threshold = state.get(f"set_threshold_{unit}", START_THRESHOLDS[unit])
    return found | {"entropy_threshold": threshold, "seed": int(found["seed"])}


def choose_model() -> None:
    """Draw the widgets of the model; `model_name` reads them."""
    kind = st.segmented_control(
        "Model", [EMBEDDED, FOLDER, HUB], key="set_model_kind", required=True, **KEPT
    )
    if kind == FOLDER:
        st.text_input(
            "Folder on this machine", key="set_model_folder", placeholder="./my-model", **KEPT
        )
    if kind == HUB:
        st.text_input(
            "Hub id", key="set_model_hub", placeholder="HuggingFaceTB/SmolLM2-135M", **KEPT
        )


def choose_drafter(drafters: Sequence[DrafterName], key: str) -> None:
    """Draw a widget with these drafters, where the choice is no setting of the run.

    Args:
        drafters: The drafters to choose from.
        key: Where the choice is kept in the session.
    """
    declared = SETTINGS["drafter"]
    st.selectbox(declared.label, drafters, key=key, help=declared.help, **KEPT)


def _draw(name: str) -> None:
    """Draw the widget of one setting."""
    declared = SETTINGS[name]
    label, given = declared.label, {"key": f"set_{name}", "help": _help(name), **KEPT}
    match declared.widget:
        case Slider(low, high, step):
            st.slider(label, low, high, step=step, **given)
        case NumberBox(low, high):
            st.number_input(label, low, high, **given)
        case Steps(values) as steps:
            st.select_slider(label, values, format_func=steps.label, **given)
        case Menu(names):
            st.selectbox(label, names, **given)
        case Buttons(labels):
            st.segmented_control(
                label, list(labels), format_func=labels.__getitem__, required=True, **given
            )
        case Toggle():
            st.toggle(label, **given)


def _help(name: str) -> str:
    page = f" See the page {_SEE[name]}." if name in _SEE else ""
    return SETTINGS[name].help + page


def _draw_threshold() -> None:
    """Draw the slider of the threshold in the chosen unit, and what its value means."""
    unit: ThresholdUnit = st.session_state.set_threshold_unit
    scale = THRESHOLD_SCALES[unit]
    value = st.slider(
        f"{SETTINGS['entropy_threshold'].label} ({unit})",
        scale.widget.low,
        scale.widget.high,
        step=scale.widget.step,
        key=f"set_threshold_{unit}",
        help=f"{_help('entropy_threshold')} {scale.help}",
        **KEPT,
    )
    st.caption(_threshold_words(unit, value))


def _threshold_words(unit: ThresholdUnit, value: float) -> str:
    """What a threshold means for the tree."""
    if unit == "nats":
        words = f"{math.exp(value):.1f}"
        return f"Branches when the model wavers between about {words} words or more."
    if unit == "normalised":
        return "Branches at this share of ln V, the largest possible entropy."
    return (
        f"Branches where the entropy is among the highest {1 - min(value, 1):.0%} of a greedy "
        "probe of the prompt, and at least 0.3 nats."
    )


def changed_since(started: RunStarted | None) -> str:
    """A sentence on how the widgets differ from the run on the screen; empty if they do not."""
    if started is None:
        return ""
    names = [name for name, value in settings().items() if getattr(started.config, name) != value]
    names = (
        ["prompt"] * (prompt() != started.prompt)
        + ["model"] * (model_name() != started.model.name)
        + names
    )
    return (
        f"Changed since this run: {plain(', '.join(names))}. Press Run to apply." if names else ""
    )
