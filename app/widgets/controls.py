"""The widgets: what to run (prompt and model) and how (the config). Limits are checked again by the
engine.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import streamlit as st

from app.server import model_cache
from app.widgets.markdown import plain
from eab.config import (
    AUTO,
    MAX_DRAFT,
    AttentionName,
    BranchingConfig,
    CacheName,
    DrafterName,
    PolicyName,
    ThresholdUnit,
)
from eab.events import RunStarted

# What the page starts with where it differs from the library: unlikely paths do not fork, and a run
# ends in seconds.
START: Final = BranchingConfig(
    min_fork_weight=0.03, max_paths=16, max_new_tokens=48, kv_limit_mib=1024
)
R_STEPS: Final = ("auto", 1, 2, 4, 8, 16, 32, 64, 128, 256)
FORK_WEIGHTS: Final = (0.0, 0.001, 0.003, 0.01, 0.03, 0.05, 0.1)
START_THRESHOLDS: Final = {"nats": START.entropy_threshold, "normalised": 0.08, "quantile": 0.8}
# From, to: what the page offers; the library allows more.
RANGES: Final[dict[str, tuple[Any, Any]]] = {
    "branch_factor": (2, 8),
    "max_paths": (1, 64),
    "max_new_tokens": (1, 256),
    "temperature": (0.1, 2.0),
    "top_k": (0, 100),
    "top_p": (0.05, 1.0),
    "draft_length": (0, MAX_DRAFT),
    "seed": (0, 2**31 - 1),
}
HIGHEST_THRESHOLD: Final = {"nats": 4.0, "normalised": 1.0, "quantile": 1.0}
POLICIES: Final = tuple(name for name in get_args(PolicyName) if name != "greedy")
FIELDS: Final = (
    *RANGES,
    "threshold_unit",
    "min_fork_weight",
    "r",
    "cache",
    "attention",
    "drafter",
    "policy",
    "chat",
)
EMBEDDED, FOLDER, HUB = "Embedded", "Folder", "Hub"
KEPT: Final[Any] = {"persist_state": "session"}  # while they are not drawn: typed once, there again
_UNIT_HELP: Final = {
    "nats": "entropy in nats; e to its power is the number of live options",
    "normalised": "share of the largest possible entropy, ln V",
    "quantile": "the most uncertain part of a greedy probe of your prompt",
}


def ensure_defaults() -> None:
    """Give every widget that has no value yet its starting value (Streamlit forgets widgets that
    were not drawn).
    """
    for name in FIELDS:
        st.session_state.setdefault(f"set_{name}", getattr(START, name))
    st.session_state.setdefault("set_model_kind", EMBEDDED)
    for unit, value in START_THRESHOLDS.items():
        st.session_state.setdefault(f"set_threshold_{unit}", value)


def fill_from(prompt: str | None, config: BranchingConfig | None, model: str) -> str:
    """Set the widgets to a run's prompt, settings and model; words on what the page cannot offer,
    if there is any.
    """
    if prompt is None or config is None:
        return ""
    state = st.session_state
    state.prompt = prompt
    _choose_model(model)
    for name in FIELDS:
        state[f"set_{name}"] = _offered(name, getattr(config, name))
    unit = config.threshold_unit
    state[f"set_threshold_{unit}"] = min(float(config.entropy_threshold), HIGHEST_THRESHOLD[unit])
    wanted = {name: getattr(config, name) for name in (*FIELDS, "entropy_threshold")}
    names = [f"{name} = {value}" for name, value in wanted.items() if settings()[name] != value]
    names += ["a system message"] if config.system else []
    return (
        f"This run used {', '.join(names)}, which the page does not offer; Run takes the nearest."
        if names
        else ""
    )


def _choose_model(name: str) -> None:
    """Set the model picker to a name as `model_name` gives it."""
    if name == "embedded":
        st.session_state.set_model_kind = EMBEDDED
    elif name.startswith((".", "/", "~")) or "\\" in name or Path(name).is_dir():
        st.session_state.set_model_kind, st.session_state.set_model_folder = FOLDER, name
    else:
        st.session_state.set_model_kind, st.session_state.set_model_hub = HUB, name


def _offered(name: str, value: Any) -> Any:
    """The nearest value that the widget of this setting has."""
    if name in RANGES:
        low, high = RANGES[name]
        return min(max(value, low), high)
    if name == "r":
        return (
            value
            if value == AUTO
            else min(R_STEPS[1:], key=lambda choice: abs(int(choice) - value))
        )
    if name == "min_fork_weight":
        return min(FORK_WEIGHTS, key=lambda choice: abs(choice - value))
    return START.policy if name == "policy" and value not in POLICIES else value


def prompt_box() -> None:
    """The prompt; see `prompt`."""
    hint = "What should the model continue?"
    st.text_area(
        "Prompt", key="prompt", height=94, placeholder=hint, label_visibility="collapsed", **KEPT
    )


def sidebar(varied: str = "") -> None:
    """All widgets of a run; what they say is read by `prompt`, `model_name` and `settings`.

    varied: the setting that the page tries in several ways, so that there is nothing to choose.
    """
    choose_model()
    _forking()
    _sampling()
    _memory(choose_cache=varied != "cache")
    if varied != "drafter":
        _guessing()


def run_bar(on_run: Callable[[], None], on_stop: Callable[[], None], active: bool) -> None:
    """The prompt, and beside it Run and Stop; without the model nothing can be run. active: a run
    is going.
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
        st.info(f"Replay only: {plain(missing)}. What was recorded opens as always.")


def prompt() -> str:
    """The prompt, as typed."""
    return str(st.session_state.prompt)


def model_name() -> str:
    """The chosen model, as a name for eab.models.loading."""
    kind = st.session_state.set_model_kind
    typed = {FOLDER: "set_model_folder", HUB: "set_model_hub"}
    return str(st.session_state.get(typed[kind], "")).strip() if kind in typed else "embedded"


def apply(widgets: dict[str, Any]) -> None:
    """Set these widgets (keys without `set_`); for callbacks."""
    for name, value in widgets.items():
        st.session_state[f"set_{name}"] = value


def settings() -> dict[str, Any]:
    """The settings of a BranchingConfig, as the widgets stand now (in a callback: already with the
    latest change).
    """
    state = st.session_state
    found = {name: getattr(START, name) for name in FIELDS}  # not every page draws them all
    found |= {name: chosen for name in FIELDS if (chosen := state.get(f"set_{name}")) is not None}
    found["kv_limit_mib"] = START.kv_limit_mib
    unit = found["threshold_unit"]
    threshold = state.get(f"set_threshold_{unit}", START_THRESHOLDS[unit])
    return found | {"entropy_threshold": threshold, "seed": int(found["seed"])}


def choose_model() -> None:
    """The widgets of `model_name`."""
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


def _forking() -> None:
    st.subheader("Where it forks")
    _threshold()
    st.slider(
        "Branch factor",
        *RANGES["branch_factor"],
        key="set_branch_factor",
        **KEPT,
        help="Children per fork.",
    )
    st.slider(
        "Max paths",
        *RANGES["max_paths"],
        key="set_max_paths",
        **KEPT,
        help="Live and finished together (policy fair).",
    )
    st.select_slider(
        "Only paths this heavy fork",
        FORK_WEIGHTS,
        format_func=lambda weight: f"{weight:.1%}" if weight else "any weight",
        key="set_min_fork_weight",
        **KEPT,
        help="Keeps unlikely texts from filling the tree. The estimate stays unbiased.",
    )
    st.selectbox(
        "Policy",
        POLICIES,
        key="set_policy",
        **KEPT,
        help="fair: weights are unbiased and sum to 1. original: the published rule, all leaves count equally. "
        "independent: ordinary sampling of max paths texts, to compare with.",
    )


def _threshold() -> None:
    unit = st.selectbox("Threshold in", get_args(ThresholdUnit), key="set_threshold_unit", **KEPT)
    key, label = f"set_threshold_{unit}", f"Entropy threshold ({unit})"
    value = st.slider(
        label, 0.0, HIGHEST_THRESHOLD[unit], step=0.01, key=key, help=_UNIT_HELP[unit], **KEPT
    )
    st.caption(
        {
            "nats": f"Forks where {math.exp(value):.1f} or more options are alive.",
            "normalised": "Forks at this share of ln V, the largest possible entropy.",
            "quantile": f"The {1 - min(value, 1):.0%} most uncertain tokens of a greedy probe fork, from 0.3 nats on.",
        }[unit]
    )


def _sampling() -> None:
    st.subheader("What it draws from")
    after = "The entropy is taken after it."
    st.slider(
        "Temperature", *RANGES["temperature"], step=0.05, key="set_temperature", **KEPT, help=after
    )
    st.slider(
        "Top-k", *RANGES["top_k"], key="set_top_k", **KEPT, help=f"0 keeps all tokens. {after}"
    )
    st.slider(
        "Top-p",
        *RANGES["top_p"],
        step=0.05,
        key="set_top_p",
        **KEPT,
        help=f"1 keeps all tokens. {after}",
    )
    st.slider(
        "Max new tokens",
        *RANGES["max_new_tokens"],
        key="set_max_new_tokens",
        **KEPT,
        help="Per path.",
    )
    st.number_input("Seed", *RANGES["seed"], key="set_seed", **KEPT, help="Same seed, same run.")
    st.toggle(
        "Chat template", key="set_chat", **KEPT, help="For instruction-tuned models that have one."
    )


def _memory(choose_cache: bool) -> None:
    st.subheader("How K and V are kept")
    if choose_cache:
        st.selectbox(
            "KV cache",
            get_args(CacheName),
            key="set_cache",
            **KEPT,
            help="tree shares rows and copies none; the others are for comparison (see the page Memory).",
        )
    st.select_slider(
        "r: rows for so many steps at a time",
        R_STEPS,
        key="set_r",
        **KEPT,
        help="Of the tree cache. BMC: 1 copies the cache at every step; at max new tokens or more, all rows are "
        "allocated up front; auto chooses at every growth. It changes time and bytes, never the text.",
    )
    st.segmented_control(
        "Attention visits",
        get_args(AttentionName),
        key="set_attention",
        **KEPT,
        required=True,
        help="Of the tree cache. sliced: the rows in use. padded: the spare rows too, under a mask, as passes of "
        "fixed shapes must (see the page BMC).",
    )


def choose_drafter(drafters: Sequence[DrafterName], key: str = "set_drafter") -> None:
    """The widget of the drafter, with these to choose from. key: another one where it is no setting
    of the run.
    """
    st.selectbox(
        "Drafter",
        drafters,
        key=key,
        **KEPT,
        help="model: the small draft model that comes with the project. prompt-lookup: what followed the same words "
        "earlier in this text. sibling-lookup: also in the other paths.",
    )


def _guessing() -> None:
    st.subheader("Guessing ahead")
    choose_drafter(get_args(DrafterName))
    st.slider(
        "Draft length",
        *RANGES["draft_length"],
        key="set_draft_length",
        **KEPT,
        help="Guesses per path and pass; 0: as many as pay. It changes time, never the text (see the page Speculative "
        "decoding).",
    )


def changed_since(started: RunStarted | None) -> str:
    """Words on how the widgets differ from the run on the screen; empty if they do not."""
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
