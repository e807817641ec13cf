"""What the page Tune offers to sweep, and the sweep that it opens with."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from app.server.workloads import STORIES
from eab.config import BranchingConfig
from eab.evaluation.questions import Question, load_questions
from eab.tuning.grid import Grid
from eab.tuning.prompt_sets import TuningPrompt

KNOWN: Final = "Chance with known odds"
THRESHOLD_RANGE: Final = (0.3, 1.2)  # nats
THRESHOLDS: Final = (0.3, 0.48, 0.76, 1.2)  # of that range, at equal ratios
VARIED: Final[Mapping[str, tuple[Any, ...]]] = {
    "max_paths": (2, 4, 8, 16, 32),
    "branch_factor": (2, 4),
    "policy": ("fair", "independent"),
}
SEEDS: Final = 8
NEW_TOKENS: Final = 12
# Prompts of assets/questions whose answers are known.
_SETS: Final = {
    KNOWN: (
        "My favorite color is",
        "I rolled a die and got a",
        "I closed my eyes and took a card. It was a",
        "I tossed three coins:",
        "Grandma went to the market and bought some",
        "A bag has three red balls and three blue balls. I take one ball. It is",
    ),
    "Capitals": (
        "The capital of France is",
        "The capital of India is",
        "The capital of Mexico is",
        "The capital of Romania is",
        "The capital of Bulgaria is",
    ),
    "Sums": (
        "Two plus two is",
        "Three plus four is",
        "Question: What is 3 + 5?\nAnswer:",
        "Question: What is 7 + 6?\nAnswer:",
    ),
}


@lru_cache(maxsize=1)
def prompt_sets() -> Mapping[str, tuple[TuningPrompt, ...]]:
    """The prompts on offer, by the name of their set; those of the recorded sweep come first."""
    known = {one.prompt: one for one in load_questions()}
    sets = {
        name: _numbered([known[prompt] for prompt in prompts]) for name, prompts in _SETS.items()
    }
    return sets | {"Stories": _numbered([Question(prompt, (), {}, "") for prompt in STORIES])}


def _numbered(questions: list[Question]) -> tuple[TuningPrompt, ...]:
    return tuple(TuningPrompt(str(number), one) for number, one in enumerate(questions, start=1))


def grid() -> Grid:
    """The settings and seeds of the recorded sweep."""
    base = BranchingConfig(max_new_tokens=NEW_TOKENS, min_fork_weight=0.0, kv_limit_mib=1024)
    varied = {"entropy_threshold": THRESHOLDS, **VARIED}
    return Grid(varied, base, tuple(range(1, SEEDS + 1)))


def prompts() -> tuple[TuningPrompt, ...]:
    """The prompts of the recorded sweep."""
    return prompt_sets()[KNOWN]
