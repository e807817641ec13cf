"""The widgets of the sidebar and the prompt: what to run, and with which settings.

The widgets of the settings are made from their declarations (eab.config). They offer what is useful
on a page; the engine checks every value again.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import streamlit as st

from app.server import estimate, model_cache, rules
from app.state.process import worker
from app.widgets import presets, setting_widgets
from app.widgets.markdown import plain
from app.widgets.setting_widgets import FIELDS, KEPT, START, START_THRESHOLDS
from eab.chat import title_of
from eab.config import SETTINGS, THRESHOLD_SCALES, BranchingConfig, DrafterName
from eab.errors import EabError
from eab.events import Message, RunStarted
from eab.formatting import counted, human_seconds, listed
from eab.remote import operator
from eab.weight_formats import AS_LOADED, WEIGHT_FORMATS, full_name, split_name

EMBEDDED, FOLDER, HUB, SERVER = "Embedded", "Folder", "Hub", "Server"
_TOP_K_OF_SERVERS: Final = 20  # every server names so many of the most likely tokens
_MESSAGES: Final = "messages_of_the_prompt"
_VARIED_WITH: Final = {"drafter": ("drafter", "draft_length")}


def ensure_defaults() -> None:
    """Give every widget without a value its starting value; Streamlit forgets undrawn widgets."""
    st.session_state.setdefault("set_model_kind", EMBEDDED)
    st.session_state.setdefault("set_weights", AS_LOADED)
    st.session_state.setdefault("set_model_dialect", operator.DIALECTS[0])
    for key, value in setting_widgets.defaults().items():
        st.session_state.setdefault(key, value)


def fill_from(
    prompt: str | None,
    config: BranchingConfig | None,
    model: str,
    messages: tuple[Message, ...] = (),
) -> None:
    """Set the widgets to a run's prompt, model and settings, or to the nearest values on offer; its
    messages are kept.
    """
    if prompt is None or config is None:
        return
    state = st.session_state
    state.prompt, state[_MESSAGES] = prompt, messages
    _choose_model(model)
    for name in FIELDS:
        state[f"set_{name}"] = setting_widgets.nearest(name, getattr(config, name))
    unit = config.threshold_unit
    slider = THRESHOLD_SCALES[unit].widget
    state[f"set_threshold_{unit}"] = slider.nearest(config.entropy_threshold)


def _choose_model(name: str) -> None:
    """Set the widgets of the model to a name as `model_name` gives it."""
    name, st.session_state.set_weights = split_name(name)
    dialect, _, at_server = name.partition(":")
    if offered := rules.current().models:
        st.session_state.set_model_listed = name if name in offered else offered[0]
    elif operator.is_on_server(name) and operator.is_allowed():
        st.session_state.set_model_kind = SERVER
        st.session_state.set_model_dialect = dialect
        st.session_state.set_model_server = at_server
    elif name == "embedded":
        st.session_state.set_model_kind = EMBEDDED
    elif name.startswith((".", "/", "~")) or "\\" in name or os.path.isdir(name):
        st.session_state.set_model_kind, st.session_state.set_model_folder = FOLDER, name
    else:
        st.session_state.set_model_kind, st.session_state.set_model_hub = HUB, name


def run_bar(
    on_run: Callable[[], None],
    on_stop: Callable[[], None],
    active: bool,
    before: Callable[[], None] | None = None,
    here: bool = False,
) -> None:
    """Draw one line with the prompt, and Run, or Stop while a run is going on.

    Args:
        on_run: Called when Run is pressed. Run is off where the model is missing.
        on_stop: Called when Stop is pressed.
        active: Whether a run is going on.
        before: Draws what stands before the prompt.
        here: Whether this machine must run the model; see `model_missing`.
    """
    with st.container(horizontal=True, vertical_alignment="center", key="run_bar"):
        if before is not None:
            before()
        st.text_area(
            "Prompt",
            key="prompt",
            placeholder="What should the model continue?",
            label_visibility="collapsed",
            **KEPT,
        )
        with st.container(key="run_or_stop"):
            _run_or_stop(on_run, on_stop, active, model_missing(here))


def _run_or_stop(
    on_run: Callable[[], None], on_stop: Callable[[], None], active: bool, missing: str
) -> None:
    if active:
        st.button("Stop", on_click=on_stop, icon=":material/stop:", key="stop_button")
        return
    st.button(
        "Run",
        on_click=on_run,
        type="primary",
        icon=":material/play_arrow:",
        key="run_button",
        disabled=bool(missing),
        help=missing or None,
    )


def model_missing(here: bool = False) -> str:
    """Why the chosen model cannot run; empty if nothing is known to be missing.

    Args:
        here: Whether this machine must run it, because the page measures its caches or weights.
    """
    name = model_name()
    return name_missing(name, here) if name else "Type the model's folder or Hub id first"


def name_missing(name: str, here: bool = False) -> str:
    """Why the model of this name cannot run; see `model_missing`."""
    if here and operator.is_on_server(name):
        return (
            f"{name} runs on a server, and this page measures caches and weights on this machine. "
            "Choose another model"
        )
    return model_cache.missing(name)


def sidebar(varied: str = "", here: bool = False) -> None:
    """Draw all widgets of a run; `model_name` and `settings` read them.

    Args:
        varied: The setting that this page varies, so that there is nothing to choose.
        here: Whether this machine must run the model; see `model_missing`.
    """
    choose_model(here)
    hidden = _VARIED_WITH.get(varied, (varied,))
    names = [name for name in SETTINGS if _has_widget(name) and name not in hidden]
    presets.draw()
    for name in names:
        if not SETTINGS[name].advanced:
            setting_widgets.draw(name)
    _estimate()
    advanced = [name for name in names if SETTINGS[name].advanced]
    with st.expander("Advanced"):
        _choose_weights()
        for group in dict.fromkeys(SETTINGS[name].group for name in advanced):
            st.markdown(f"**{group}**")
            for name in advanced:
                if SETTINGS[name].group == group:
                    setting_widgets.draw(name)
    _reset_button()


def _has_widget(name: str) -> bool:
    return name == "entropy_threshold" or SETTINGS[name].widget is not None


def _estimate() -> None:
    """What Run will take at most, as far as it is known."""
    try:
        config = BranchingConfig.from_settings(settings())
    except EabError:
        return  # Run explains it
    needs = estimate.seconds(config, model_name(), worker().remembered)
    about = f", about {human_seconds(needs)}" if needs is not None else ""
    st.caption(f"Run: at most {counted(estimate.most_tokens(config), 'token')}{about}.")


def _changed_settings() -> int:
    """How many settings are not at the page's defaults."""
    defaults = setting_widgets.defaults()
    return sum(st.session_state[key] != value for key, value in defaults.items())


def reset() -> None:
    """Set all settings to the page's defaults; for callbacks."""
    st.session_state.update(setting_widgets.defaults())


def leave_example(started: RunStarted) -> None:
    """Set the defaults if another prompt is to be run with the untouched settings of an example.

    An example chooses its settings for its own prompt: a few tokens, say, or two candidates. They
    would spoil other texts.

    Args:
        started: The header of the example on the screen.
    """
    untouched = all(settings()[name] == value for name, value in _recorded(started.config).items())
    if untouched and prompt() != started.prompt:
        reset()


def _reset_button() -> None:
    """A button that sets all settings to the page's defaults; the prompt and the model stay."""
    changed = _changed_settings()
    st.button(
        f"Reset {counted(changed, 'setting')}" if changed else "Reset",
        on_click=reset,
        disabled=not changed,
        key="reset_button",
        width="stretch",
        help="Set all settings to the defaults. The prompt and the model stay.",
    )


def prompt() -> str:
    """The prompt, as typed."""
    return str(st.session_state.prompt)


def messages() -> tuple[Message, ...]:
    """The chat of the run that the widgets were set to, while its prompt is not changed."""
    kept: tuple[Message, ...] = st.session_state.get(_MESSAGES, ())
    return kept if kept and title_of(kept) == prompt() else ()


def model_name() -> str:
    """The chosen model and weight format, as a name for app.server.model_cache; empty if none is
    named.
    """
    if offered := rules.current().models:
        listed_name = st.session_state.get("set_model_listed", offered[0])
        return full_name(listed_name, st.session_state.set_weights)
    kind = st.session_state.set_model_kind
    typed = {FOLDER: "set_model_folder", HUB: "set_model_hub", SERVER: "set_model_server"}
    name = str(st.session_state.get(typed[kind], "")).strip() if kind in typed else "embedded"
    if kind == SERVER and name:
        return f"{st.session_state.set_model_dialect}:{name}"
    return full_name(name, st.session_state.set_weights) if name else ""


def apply(widgets: dict[str, Any]) -> None:
    """Set these widgets, by their keys without `set_`; for callbacks."""
    for name, value in widgets.items():
        st.session_state[f"set_{name}"] = value


def settings() -> dict[str, Any]:
    """The settings of a BranchingConfig, as the widgets stand now.

    In a callback, the latest change is already in them.
    """
    state = st.session_state
    # Not every page draws them all.
    found = {name: setting_widgets.nearest(name, getattr(START, name)) for name in FIELDS}
    found |= {name: chosen for name in FIELDS if (chosen := state.get(f"set_{name}")) is not None}
    found = {name: setting_widgets.read(name, held) for name, held in found.items()}
    found["kv_limit_mib"] = START.kv_limit_mib
    unit = found["threshold_unit"]
    threshold = state.get(f"set_threshold_{unit}", START_THRESHOLDS[unit])
    return found | {"entropy_threshold": threshold, "seed": int(found["seed"])}


def choose_model(here: bool = False) -> None:
    """Draw the widgets of the model; `model_name` reads them.

    Args:
        here: Whether this machine must run it; see `model_missing`.
    """
    if offered := rules.current().models:
        if len(offered) > 1:
            st.selectbox("Model", offered, key="set_model_listed", **KEPT)
    else:
        _name_model()
    if model_name() and (missing := model_missing(here)):
        st.info(f"Replay only: {plain(missing)}. Recorded runs still open.")


def _name_model() -> None:
    """Let the user name any model."""
    kinds = [EMBEDDED, FOLDER, HUB, *([SERVER] if operator.is_allowed() else [])]
    kind = st.segmented_control(
        "Model", kinds, key="set_model_kind", required=True, on_change=_keep_exact, **KEPT
    )
    if kind == SERVER:
        _choose_on_server()
    if kind == FOLDER:
        st.text_input(
            "Folder on this machine", key="set_model_folder", placeholder="./my-model", **KEPT
        )
    if kind == HUB:
        st.text_input(
            "Hub id", key="set_model_hub", placeholder="HuggingFaceTB/SmolLM2-135M", **KEPT
        )


def _choose_on_server() -> None:
    """Draw the widgets of a model on the operator's server."""
    st.selectbox("Kind of server", operator.DIALECTS, key="set_model_dialect", **KEPT)
    st.text_input(
        "Model on the server",
        key="set_model_server",
        placeholder="embedded",
        help="A Hub id, a folder on this machine, or embedded: its tokenizer is read here. The "
        "weights are on the server that whoever runs this page has named.",
        **KEPT,
    )
    st.caption("A server names the most likely tokens only: choose a top-k of 1 to 100.")


def _keep_exact() -> None:
    """Give runs on a server a top-k, without which they would not be exact."""
    if st.session_state.set_model_kind == SERVER and not st.session_state.get("set_top_k"):
        st.session_state.set_top_k = _TOP_K_OF_SERVERS


def _choose_weights() -> None:
    formats = "; ".join(f"{name}: {words}" for name, words in WEIGHT_FORMATS.items())
    st.selectbox(
        "Weights",
        list(WEIGHT_FORMATS),
        key="set_weights",
        help=f"How the model's weights are stored. Fewer bits change the tokens. {formats}.",
        **KEPT,
    )


def choose_drafter(drafters: Sequence[DrafterName], key: str) -> None:
    """Draw a widget with these drafters, where the choice is no setting of the run.

    Args:
        drafters: The drafters to choose from.
        key: Where the choice is kept in the session.
    """
    declared = SETTINGS["drafter"]
    st.selectbox(declared.label, drafters, key=key, help=declared.help, **KEPT)


def changed_since(started: RunStarted | None) -> str:
    """A sentence on how the widgets differ from the run on the screen; empty if they do not."""
    if started is None:
        return ""
    asked = (prompt(), messages())
    others = ["prompt"] * (asked != (started.prompt, started.messages))
    others += ["model"] * (model_name() != started.model.full_name)
    if others:
        return f"The picture shows another {listed(others)}. Press Run for yours."
    chosen = _chosen()
    changed = [
        f"{SETTINGS[name].label.lower()} (was {setting_widgets.shown(name, recorded)})"
        for name, recorded in _recorded(started.config).items()
        if chosen[name] != recorded
    ]
    return (
        f"Changed since this run: {plain(listed(changed))}. Press Run to apply." if changed else ""
    )


def _chosen() -> dict[str, Any]:
    """The settings as a config has them, if they are allowed: typed JSON in its one form."""
    try:
        config = BranchingConfig.from_settings(settings())
    except EabError:
        return settings()
    return _recorded(config)


def _recorded(config: BranchingConfig) -> dict[str, Any]:
    """The settings of a run that the page can set."""
    return {name: getattr(config, name) for name in ("entropy_threshold", *FIELDS)}
