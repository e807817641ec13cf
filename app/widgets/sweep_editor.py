"""What the Tune page sweeps: the prompts, and the values of each setting."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import streamlit as st

from app.server import tasks
from app.state.session import KEPT, worker
from app.widgets import controls
from eab.config import MAX_LABEL, SETTINGS, BranchingConfig, PolicyName
from eab.errors import ConfigError
from eab.formatting import counted, human_seconds
from eab.labs.tuning import prompt_sets, sweeping
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.report import Plan
from eab.labs.tuning.sweeping import Item, items_of
from eab.lessons import bundled_runs

OWN: Final = "Your own, one per line"
MAX_PROMPTS, MAX_PROMPT, MAX_CELLS = 24, 2000, 4000
_LOWEST, _HIGHEST, _MOST_THRESHOLDS = 0.05, 3.0, 9  # nats
_MOST_BYTES: Final = 20_000  # of a prompt with its answers, as JSON: each cell's key contains it
_MOST_SEEDS, _SHORTEST, _LONGEST = 12, 4, 96  # the lengths are in tokens
POLICIES: Final[tuple[PolicyName, ...]] = (
    "fair",
    "independent",
    "original",
    "arithmetic",
    "stochastic-beam",
    "beam",
    "best-first",
)
# The values on offer of the settings that vary, besides the threshold
_OFFERED: Final[Mapping[str, tuple[Any, ...]]] = {
    "max_paths": (2, 4, 8, 12, 16, 24, 32, 48, 64),
    "branch_factor": (2, 3, 4, 5, 8),
    "policy": POLICIES,
}
_SETS: Final = "tune_set"
PILOT_SET: Final = "tune_pilot_set"  # the key of the prompt set to recommend a threshold for


def _defaults() -> dict[str, Any]:
    return {
        _SETS: sweeping.RECORDED_SET,
        PILOT_SET: sweeping.PILOT_PROMPTS,
        "tune_prompts": sweeping.START_PROMPTS,
        "tune_own": "",
        "tune_label": "",
        "tune_threshold_range": sweeping.THRESHOLD_RANGE,
        "tune_threshold_count": len(sweeping.THRESHOLDS),
        "tune_branch_factor": [*sweeping.START_FACTORS],
        "tune_max_paths": [*sweeping.VARIED["max_paths"]],
        "tune_policy": [*sweeping.VARIED["policy"]],
        "tune_seeds": sweeping.START_SEEDS,
        "tune_max_new_tokens": sweeping.NEW_TOKENS,
    }


def ensure_defaults() -> None:
    """Give every widget without a value its starting value; Streamlit forgets undrawn widgets."""
    for key, value in _defaults().items():
        st.session_state.setdefault(key, value)


def fill_from(plan: Plan) -> None:
    """Set the controls to the plan of a sweep, as far as they can express it."""
    base, varied, asked = plan.grid.base, plan.grid.varied, plan.prompts[:MAX_PROMPTS]
    thresholds = varied.get("entropy_threshold", (base.entropy_threshold,))
    low, high = (min(max(end(thresholds), _LOWEST), _HIGHEST) for end in (min, max))
    chosen: dict[str, Any] = {
        "tune_threshold_range": (low, high),
        "tune_threshold_count": min(len(thresholds), _MOST_THRESHOLDS),
        "tune_seeds": min(len(plan.grid.seeds), _MOST_SEEDS),
        "tune_max_new_tokens": min(max(base.max_new_tokens, _SHORTEST), _LONGEST),
        _SETS: OWN,
        "tune_own": "\n".join(prompt.question.prompt for prompt in asked),
        "tune_label": asked[0].question.label,
    }
    for name, offered in _OFFERED.items():
        values = varied.get(name, (getattr(base, name),))
        chosen[f"tune_{name}"] = [value for value in values if value in offered]
    for name in prompt_sets.SET_LABELS:
        if prompt_sets.some_prompts(name, len(asked)) == asked:
            own = st.session_state["tune_own"]
            chosen |= {_SETS: name, "tune_prompts": len(asked), "tune_own": own}
    st.session_state.update(chosen)


def choose_prompts(key: str = _SETS) -> None:
    """Draw the choice of a prompt set: that of the sweep, or one under another key."""
    st.selectbox(
        "Prompts",
        [*prompt_sets.SET_LABELS, OWN],
        format_func=lambda name: prompt_sets.SET_LABELS.get(name, name),
        key=key,
        **KEPT,
    )


def own_prompts(key: str = _SETS) -> None:
    """Draw the box for the user's own prompts, if these are chosen."""
    if st.session_state[key] == OWN:
        lines, word = st.columns([3, 1])
        lines.text_area(
            "Prompts, one per line",
            key="tune_own",
            height=96,
            help=f"At most {MAX_PROMPTS}. Metrics that need known answers are not available.",
            **KEPT,
        )
        word.text_input(
            "A word, as label",
            key="tune_label",
            max_chars=MAX_LABEL,
            help="The gains then have the probability of texts that contain it, and the width of "
            "its certain bounds.",
            **KEPT,
        )


def prompts(key: str = _SETS) -> list[TuningPrompt]:
    """The chosen prompts, with known answers. Raises ConfigError if there are none or too many."""
    if st.session_state[key] != OWN:
        chosen = prompt_sets.some_prompts(st.session_state[key], st.session_state["tune_prompts"])
        return [*chosen]
    lines = [line.strip() for line in st.session_state["tune_own"].splitlines()]
    written = list(dict.fromkeys(line for line in lines if line))
    _check_prompts(written)
    label = st.session_state["tune_label"].strip()
    return [
        TuningPrompt(str(number), Question(prompt, label=label))
        for number, prompt in enumerate(written, start=1)
    ]


def _check_prompts(written: Sequence[str]) -> None:
    if not 1 <= len(written) <= MAX_PROMPTS:
        raise ConfigError(
            f"there are {counted(len(written), 'prompt')}; write 1 to {MAX_PROMPTS}, one per line"
        )
    for number, prompt in enumerate(written, start=1):
        if len(prompt) > MAX_PROMPT:
            raise ConfigError(
                f"prompt {number} has {len(prompt):,} characters; at most {MAX_PROMPT:,} are "
                "allowed. Shorten it"
            )


def choose_ranges() -> None:
    """Draw the controls of the settings that vary, and of those for all settings."""
    st.markdown("**What varies**")
    st.slider(
        "Entropy threshold (nats), from and to",
        _LOWEST,
        _HIGHEST,
        step=0.05,
        key="tune_threshold_range",
        **KEPT,
    )
    evenly = "Number of values in this range, evenly spaced on a log scale."
    _slider("Thresholds", "threshold_count", 1, _MOST_THRESHOLDS, evenly)
    for name, values in _OFFERED.items():
        declared = SETTINGS[name]
        st.pills(
            declared.label,
            values,
            selection_mode="multi",
            key=f"tune_{name}",
            help=declared.help,
            **KEPT,
        )
    st.markdown("**For all settings**")
    number = "Number of prompts from the set, evenly spaced. Your own prompts are all used."
    _slider("Prompts of a set", "prompts", 1, MAX_PROMPTS, number)
    seeds = "Every setting runs each prompt once per seed. Their spread gives the error bars."
    _slider("Seeds", "seeds", 1, _MOST_SEEDS, seeds)
    length = SETTINGS["max_new_tokens"].help
    _slider("Max new tokens", "max_new_tokens", _SHORTEST, _LONGEST, length)


def _slider(label: str, name: str, low: int, high: int, help_text: str) -> None:
    st.slider(label, low, high, key=f"tune_{name}", help=help_text, **KEPT)


def thresholds() -> tuple[float, ...]:
    """The chosen thresholds in nats."""
    low, high = st.session_state["tune_threshold_range"]
    values = np.geomspace(low, high, st.session_state["tune_threshold_count"])
    return tuple(dict.fromkeys(round(float(value), 2) for value in values))


def base() -> BranchingConfig:
    """The settings that do not vary: those of Explore, except that every path may fork, whatever
    its weight; otherwise no cell would follow from another one.
    """
    chosen = controls.settings() | {
        "threshold_unit": "nats",
        "entropy_threshold": thresholds()[0],
        "min_fork_weight": 0.0,
        "max_new_tokens": st.session_state["tune_max_new_tokens"],
        "drafter": "none",
        "seed": 0,
    }
    return BranchingConfig.from_settings(chosen)


def grid() -> Grid:
    """The grid to sweep. Raises ConfigError if no value is chosen for a setting."""
    values: dict[str, tuple[Any, ...]] = {"entropy_threshold": thresholds()}
    for name in _OFFERED:
        values[name] = tuple(sorted(st.session_state[f"tune_{name}"]))
        if not values[name]:
            raise ConfigError(
                f"no value is chosen for {SETTINGS[name].label.lower()}; choose at least one"
            )
    return Grid(values, base(), tuple(range(1, st.session_state["tune_seeds"] + 1)))


def needs_words(chosen: Grid, asked: Sequence[TuningPrompt], model_name: str) -> str:
    """How many cells a sweep has, how many of them the model must run, and about how long it takes.
    Raises ConfigError if there are too many cells.
    """
    items = items_of(asked, chosen)
    cells = sum(len(item.configs) for item in items)
    check_cells(cells)
    least = "" if cells == len(items) else "at least "
    runs = f"the model makes {least}{counted(len(items), 'run')}"
    return f"{counted(cells, 'cell')}; {runs}{_time_words(items, model_name)}."


def check_cells(cells: int) -> None:
    """Raise ConfigError if there are too many cells."""
    if cells > MAX_CELLS:
        raise ConfigError(
            f"there are {cells:,} cells; at most {MAX_CELLS:,} are allowed here. Choose fewer "
            "values, prompts or seeds, or use eab sweep"
        )


def check_plan(plan: Plan) -> None:
    """Raise ConfigError for a plan that this page could not have made: a file may contain any plan,
    and no rule of the server limits settings that vary.
    """
    check_cells(plan.cells)
    _check_prompts([prompt.question.prompt for prompt in plan.prompts])
    prompts = map(msgspec.to_builtins, plan.prompts)  # with the answers
    sizes = (len(json.dumps(prompt)) for prompt in prompts)
    if plan.grid.varied.keys() - {"entropy_threshold", *_OFFERED} or max(sizes) > _MOST_BYTES:
        raise ConfigError(
            "this sweep was not started on this page, so it cannot be resumed here. Press Use its "
            "settings under Open, then Run"
        )


def _time_words(items: Sequence[Item], model_name: str) -> str:
    """About how long the items take, as a text; empty if that is unknown."""
    timed, where = tasks.timed_cells(model_name, worker().remembered), "from earlier runs here"
    recorded = bundled_runs.tuning()
    if not timed and model_name == recorded.model_name:
        timed = [cell for cell in recorded.cells if cell.made == "run"]
        where = "at the speed of the recorded sweep"
    seconds = tasks.sweep_seconds(items, timed)
    return f"; about {human_seconds(seconds)}, {where}" if seconds else ""
