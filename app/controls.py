"""The widgets: what to run (prompt and model) and how (the config). Limits are checked again by the engine."""

import math
from typing import Any, Final, get_args

import streamlit as st

from app.words import plain
from eab.config import BranchingConfig, PolicyName, ThresholdUnit
from eab.events import RunStarted

# What the page starts with where it differs from the library: unlikely paths do not fork, and a run ends in seconds.
START: Final = BranchingConfig(min_fork_weight=0.03, max_paths=16, max_new_tokens=48, kv_limit_mib=1024)
R_STEPS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FORK_WEIGHTS: Final = (0.0, 0.001, 0.003, 0.01, 0.03, 0.05, 0.1)
START_THRESHOLDS: Final = {"nats": START.entropy_threshold, "normalised": 0.08, "quantile": 0.8}
FIELDS: Final = (
    "threshold_unit",
    "branch_factor",
    "min_fork_weight",
    "max_paths",
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "r",
    "seed",
    "policy",
    "chat",
)
EMBEDDED, FOLDER, HUB = "Embedded", "Folder", "Hub"
_UNIT_HELP: Final = {
    "nats": "entropy in nats; e to its power is the number of live options",
    "normalised": "share of the largest possible entropy, ln V",
    "quantile": "the most uncertain part of a greedy probe of your prompt",
}


def ensure_defaults() -> None:
    """Give every widget that has no value yet its starting value (Streamlit forgets widgets that were not drawn)."""
    for name in FIELDS:
        st.session_state.setdefault(f"set_{name}", getattr(START, name))
    st.session_state.setdefault("set_model_kind", EMBEDDED)
    for unit, value in START_THRESHOLDS.items():
        st.session_state.setdefault(f"set_threshold_{unit}", value)


def fill_from(started: RunStarted | None) -> None:
    """Set all widgets to a run's prompt and settings, so that Run repeats it."""
    if started is None:
        return
    config, state = started.config, st.session_state
    state.prompt = started.prompt
    for name in FIELDS:
        state[f"set_{name}"] = getattr(config, name)
    state.set_r, state.set_min_fork_weight = _nearest(config.r, R_STEPS), _nearest(config.min_fork_weight, FORK_WEIGHTS)
    state[f"set_threshold_{config.threshold_unit}"] = config.entropy_threshold


def prompt_box() -> str:
    """The prompt, as typed."""
    hint = "What should the model continue?"
    return str(st.text_area("Prompt", key="prompt", height=94, placeholder=hint, label_visibility="collapsed"))


def model_name() -> str:
    """The model picker in the sidebar -> a name for eab.models.loading."""
    kind = st.segmented_control("Model", [EMBEDDED, FOLDER, HUB], key="set_model_kind", required=True)
    if kind == FOLDER:
        return str(st.text_input("Folder on this machine", key="set_model_folder", placeholder="./my-model")).strip()
    if kind == HUB:
        return str(st.text_input("Hub id", key="set_model_hub", placeholder="HuggingFaceTB/SmolLM2-135M")).strip()
    return "embedded"


def settings() -> dict[str, Any]:
    """The sliders in the sidebar -> settings of a BranchingConfig."""
    return {"kv_limit_mib": START.kv_limit_mib} | _forking() | _sampling() | _memory()


def _forking() -> dict[str, Any]:
    st.subheader("Where it forks")
    return _threshold() | {
        "branch_factor": st.slider("Branch factor", 2, 8, key="set_branch_factor", help="Children per fork."),
        "max_paths": st.slider(
            "Max paths", 1, 64, key="set_max_paths", help="Live and finished together (policy fair)."
        ),
        "min_fork_weight": st.select_slider(
            "Only paths this heavy fork",
            FORK_WEIGHTS,
            format_func=lambda weight: f"{weight:.1%}" if weight else "any weight",
            key="set_min_fork_weight",
            help="Keeps unlikely texts from filling the tree. The estimate stays unbiased.",
        ),
        "policy": st.selectbox(
            "Policy",
            [name for name in get_args(PolicyName) if name != "greedy"],
            key="set_policy",
            help="fair: weights are unbiased and sum to 1. original: the published rule, all leaves count equally.",
        ),
    }


def _threshold() -> dict[str, Any]:
    unit = st.selectbox("Threshold in", get_args(ThresholdUnit), key="set_threshold_unit")
    key, highest = f"set_threshold_{unit}", 4.0 if unit == "nats" else 1.0
    value = st.slider(f"Entropy threshold ({unit})", 0.0, highest, step=0.01, key=key, help=_UNIT_HELP[unit])
    st.caption(
        {
            "nats": f"Forks where {math.exp(value):.1f} or more options are alive.",
            "normalised": "Forks at this share of ln V, the largest possible entropy.",
            "quantile": f"The {1 - min(value, 1):.0%} most uncertain tokens of a greedy probe would fork.",
        }[unit]
    )
    return {"threshold_unit": unit, "entropy_threshold": value}


def _sampling() -> dict[str, Any]:
    st.subheader("What it draws from")
    after = "The entropy is taken after it."
    return {
        "temperature": st.slider("Temperature", 0.1, 2.0, step=0.05, key="set_temperature", help=after),
        "top_k": st.slider("Top-k", 0, 100, key="set_top_k", help=f"0 keeps all tokens. {after}"),
        "top_p": st.slider("Top-p", 0.05, 1.0, step=0.05, key="set_top_p", help=f"1 keeps all tokens. {after}"),
        "max_new_tokens": st.slider("Max new tokens", 1, 256, key="set_max_new_tokens", help="Per path."),
        "seed": int(st.number_input("Seed", 0, 2**31 - 1, key="set_seed", help="Same seed, same run.")),
        "chat": st.toggle("Chat template", key="set_chat", help="For instruction-tuned models that have one."),
    }


def _memory() -> dict[str, Any]:
    st.subheader("How the KV cache grows")
    r = st.select_slider(
        "r: rows for so many steps at a time",
        R_STEPS,
        key="set_r",
        help="BMC: 1 copies the cache at every step; at max new tokens or more, all rows are allocated up front. "
        "It changes time and bytes, never the text.",
    )
    return {"r": r}


def changed_since(started: RunStarted | None, prompt: str, wanted: dict[str, Any]) -> str:
    """Words on how the widgets differ from the run on the screen; empty if they do not."""
    if started is None:
        return ""
    names = [
        name for name, value in wanted.items() if name != "kv_limit_mib" and getattr(started.config, name) != value
    ]
    names = (["prompt"] if prompt != started.prompt else []) + names
    return f"Changed since this run: {plain(', '.join(names))}. Press Run to apply." if names else ""


def _nearest(value: float, allowed: tuple[Any, ...]) -> Any:
    return min(allowed, key=lambda candidate: abs(candidate - value))
