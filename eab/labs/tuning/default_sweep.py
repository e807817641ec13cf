"""The choices of the Tune page, its recorded sweeps, and a smaller sweep to start with."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from eab.config import BranchingConfig
from eab.engine.branching.presets import starting_config
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt, bundled_prompts

SET_LABELS: Final[Mapping[str, str]] = {
    "chances": "Chances with known odds",
    "bags": "Balls in a bag",
    "facts": "Facts",
    "sums": "Sums",
    "stories": "Stories",
}
KNOWN: Final = "chances"
PILOT_PROMPTS: Final = "stories"  # long texts, so that the threshold affects the number of paths
PROMPTS: Final = 6
THRESHOLD_RANGE: Final = (0.3, 1.2)  # nats
THRESHOLDS: Final = (0.3, 0.48, 0.76, 1.2)  # evenly spaced over the range on a log scale
VARIED: Final[Mapping[str, tuple[Any, ...]]] = {
    "max_paths": (2, 4, 8, 16, 32),
    "branch_factor": (2, 4),
    "policy": ("fair", "independent"),
}
SEEDS: Final = 8
NEW_TOKENS: Final = 12
# Initial values of the controls; such a sweep takes less than 30 seconds on two cores.
START_PROMPTS: Final = 4
START_SEEDS: Final = 6
START_FACTORS: Final = (2,)


@lru_cache(maxsize=16)
def some_prompts(name: str, count: int) -> tuple[TuningPrompt, ...]:
    """`count` prompts of a bundled set, evenly spaced; all if it has fewer."""
    every = bundled_prompts(name)
    number = min(count, len(every))
    return tuple(every[place * len(every) // number] for place in range(number))


def grid() -> Grid:
    """The settings and seeds of the recorded sweep."""
    base = BranchingConfig(max_new_tokens=NEW_TOKENS, min_fork_weight=0.0, kv_limit_mib=1024)
    varied = {"entropy_threshold": THRESHOLDS, **VARIED}
    return Grid(varied, base, tuple(range(1, SEEDS + 1)))


def prompts() -> tuple[TuningPrompt, ...]:
    """The prompts of the recorded sweep."""
    return some_prompts(KNOWN, PROMPTS)


POLICIES: Final = ("fair", "best-first", "arithmetic", "stochastic-beam", "beam", "independent")
_QUESTION: Final = re.compile("Question: (.*)\nAnswer:")


@lru_cache(maxsize=1)
def chat_questions() -> tuple[Question, ...]:
    """A hundred of the facts, as questions to a chat model."""
    asked = [
        replace(one.question, prompt=f"{stem[1]} Answer in a few words.")
        for one in bundled_prompts("facts")
        if (stem := _QUESTION.fullmatch(one.question.prompt))
    ]
    return tuple(one for number, one in enumerate(asked) if number % 7)[:100]


def policies_grid() -> Grid:
    """The recorded sweep of policies on a chat model; `fair` may fork more than on Explore."""
    base = starting_config(max_new_tokens=20, entropy_threshold=0.3, min_fork_weight=0.0)
    return Grid({"policy": POLICIES, "max_paths": (4, 8, 16, 32)}, base, (1, 2, 3))


def policies_prompts() -> tuple[TuningPrompt, ...]:
    """Every tenth question."""
    return tuple(
        TuningPrompt(f"facts-{number:03d}", question)
        for number, question in enumerate(chat_questions()[2::10], start=1)
    )
