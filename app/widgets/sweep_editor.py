"""What the Tune page sweeps: the prompts, and the values of each setting."""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import streamlit as st

from app.server import estimate
from app.state.process import worker
from app.widgets import controls
from app.widgets.setting_widgets import KEPT
from eab.config import SETTINGS, BranchingConfig, PolicyName
from eab.errors import ConfigError
from eab.formatting import counted, human_seconds
from eab.labs.tuning import default_sweep
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
_BRANCH_FACTORS: Final = (2, 3, 4, 5, 8)
_MAX_PATHS: Final = (2, 4, 8, 12, 16, 24, 32, 48, 64)
POLICIES: Final[tuple[PolicyName, ...]] = (
    "fair",
    "independent",
    "original",
    "arithmetic",
    "stochastic-beam",
    "beam",
)
_VARIED: Final = frozenset({"entropy_threshold", "max_paths", "branch_factor", "policy"})
_SETS, _NUMBER, _OWN, _RANGE, _COUNT, _FACTORS, _LIMITS, _CHOSEN_POLICIES, _SEEDS, _TOKENS = (
    f"tune_{name}"
    for name in (
        "set",
        "prompts",
        "own",
        "threshold_range",
        "threshold_count",
        "branch_factor",
        "max_paths",
        "policy",
        "seeds",
        "max_new_tokens",
    )
)

PILOT_SET: Final = "tune_pilot_set"  # the key of the prompt set to recommend a threshold for


def _defaults() -> dict[str, Any]:
    return {
        _SETS: default_sweep.KNOWN,
        PILOT_SET: default_sweep.PILOT_PROMPTS,
        _NUMBER: default_sweep.START_PROMPTS,
        _OWN: "",
        _RANGE: default_sweep.THRESHOLD_RANGE,
        _COUNT: len(default_sweep.THRESHOLDS),
        _FACTORS: [*default_sweep.START_FACTORS],
        _LIMITS: [*default_sweep.VARIED["max_paths"]],
        _CHOSEN_POLICIES: [*default_sweep.VARIED["policy"]],
        _SEEDS: default_sweep.START_SEEDS,
        _TOKENS: default_sweep.NEW_TOKENS,
    }


def ensure_defaults() -> None:
    """Give every widget without a value its starting value; Streamlit forgets undrawn widgets."""
    for key, value in _defaults().items():
        st.session_state.setdefault(key, value)


def fill_from(plan: Plan) -> None:
    """Set the controls to the plan of a sweep, as far as they can express it."""
    base = plan.grid.base

    def values(name: str, offered: Sequence[Any]) -> list[Any]:
        return [
            value
            for value in plan.grid.varied.get(name, (getattr(base, name),))
            if value in offered
        ]

    thresholds = plan.grid.varied.get("entropy_threshold", (base.entropy_threshold,))
    low, high = (min(max(end(thresholds), _LOWEST), _HIGHEST) for end in (min, max))
    st.session_state.update(
        {
            _RANGE: (low, high),
            _COUNT: min(len(thresholds), _MOST_THRESHOLDS),
            _LIMITS: values("max_paths", _MAX_PATHS),
            _FACTORS: values("branch_factor", _BRANCH_FACTORS),
            _CHOSEN_POLICIES: values("policy", POLICIES),
            _SEEDS: min(len(plan.grid.seeds), _MOST_SEEDS),
            _TOKENS: min(max(base.max_new_tokens, _SHORTEST), _LONGEST),
            **_prompts_from(plan.prompts[:MAX_PROMPTS]),
        }
    )


def _prompts_from(asked: tuple[TuningPrompt, ...]) -> dict[str, Any]:
    for name in default_sweep.SET_LABELS:
        if default_sweep.some_prompts(name, len(asked)) == asked:
            return {_SETS: name, _NUMBER: len(asked)}
    return {_SETS: OWN, _OWN: "\n".join(prompt.question.prompt for prompt in asked)}


def choose_prompts(key: str = _SETS) -> None:
    """Draw the choice of a prompt set: that of the sweep, or one under another key."""
    st.selectbox(
        "Prompts",
        [*default_sweep.SET_LABELS, OWN],
        format_func=lambda name: default_sweep.SET_LABELS.get(name, name),
        key=key,
        **KEPT,
    )


def own_prompts(key: str = _SETS) -> None:
    """Draw the box for the user's own prompts, if these are chosen."""
    if st.session_state[key] == OWN:
        st.text_area(
            "Prompts, one per line",
            key=_OWN,
            height=96,
            help=f"At most {MAX_PROMPTS}. Metrics that need known answers are not available.",
            **KEPT,
        )


def prompts(key: str = _SETS) -> list[TuningPrompt]:
    """The chosen prompts, with known answers. Raises ConfigError if there are none or too many."""
    if st.session_state[key] != OWN:
        chosen = default_sweep.some_prompts(st.session_state[key], st.session_state[_NUMBER])
        return [*chosen]
    lines = [line.strip() for line in st.session_state[_OWN].splitlines()]
    written = list(dict.fromkeys(line for line in lines if line))
    _check_prompts(written)
    return [
        TuningPrompt(str(number), Question(prompt, (), {}, ""))
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
        "Entropy threshold (nats), from and to", _LOWEST, _HIGHEST, step=0.05, key=_RANGE, **KEPT
    )
    st.slider(
        "Thresholds",
        1,
        _MOST_THRESHOLDS,
        key=_COUNT,
        help="Number of values in this range, evenly spaced on a log scale.",
        **KEPT,
    )
    for key, name, values in (
        (_LIMITS, "max_paths", _MAX_PATHS),
        (_FACTORS, "branch_factor", _BRANCH_FACTORS),
        (_CHOSEN_POLICIES, "policy", POLICIES),
    ):
        declared = SETTINGS[name]
        st.pills(
            declared.label, values, selection_mode="multi", key=key, help=declared.help, **KEPT
        )
    st.markdown("**For all settings**")
    st.slider(
        "Prompts of a set",
        1,
        MAX_PROMPTS,
        key=_NUMBER,
        help="Number of prompts from the set, evenly spaced. Your own prompts are all used.",
        **KEPT,
    )
    st.slider(
        "Seeds",
        1,
        _MOST_SEEDS,
        key=_SEEDS,
        help=(
            "Every setting runs each prompt once per seed. The spread between the seeds gives "
            "the error bars."
        ),
        **KEPT,
    )
    st.slider(
        "Max new tokens",
        _SHORTEST,
        _LONGEST,
        key=_TOKENS,
        help=SETTINGS["max_new_tokens"].help,
        **KEPT,
    )


def thresholds() -> tuple[float, ...]:
    """The chosen thresholds in nats."""
    low, high = st.session_state[_RANGE]
    values = np.geomspace(low, high, st.session_state[_COUNT])
    return tuple(dict.fromkeys(round(float(value), 2) for value in values))


def base() -> BranchingConfig:
    """The settings that do not vary: those of Explore, except that every path may fork, whatever
    its weight; otherwise no cell would follow from another one.
    """
    chosen = controls.settings() | {
        "threshold_unit": "nats",
        "entropy_threshold": thresholds()[0],
        "min_fork_weight": 0.0,
        "max_new_tokens": st.session_state[_TOKENS],
        "drafter": "none",
        "seed": 0,
    }
    return BranchingConfig.from_settings(chosen)


def grid() -> Grid:
    """The grid to sweep. Raises ConfigError if no value is chosen for a setting."""
    values: dict[str, tuple[Any, ...]] = {"entropy_threshold": thresholds()}
    for key, name in (
        (_LIMITS, "max_paths"),
        (_FACTORS, "branch_factor"),
        (_CHOSEN_POLICIES, "policy"),
    ):
        values[name] = tuple(sorted(st.session_state[key]))
        if not values[name]:
            raise ConfigError(
                f"no value is chosen for {SETTINGS[name].label.lower()}; choose at least one"
            )
    return Grid(values, base(), tuple(range(1, st.session_state[_SEEDS] + 1)))


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
    if plan.grid.varied.keys() - _VARIED or max(sizes) > _MOST_BYTES:
        raise ConfigError(
            "this sweep was not started on this page, so it cannot be resumed here. Press Use its "
            "settings under Open, then Run"
        )


def _time_words(items: Sequence[Item], model_name: str) -> str:
    """About how long the items take, as a text; empty if that is unknown."""
    timed, where = estimate.timed_cells(model_name, worker().remembered), "from earlier runs here"
    recorded = bundled_runs.tuning()
    if not timed and model_name == recorded.model_name:
        timed = [cell for cell in recorded.cells if cell.made == "run"]
        where = "at the speed of the recorded sweep"
    seconds = estimate.sweep_seconds(items, timed)
    return f"; about {human_seconds(seconds)}, {where}" if seconds else ""
