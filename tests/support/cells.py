"""Cells of invented sweeps, for tests of what is computed from cells."""

import hashlib
from typing import Any

from eab.config import BranchingConfig
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.report import Plan


def cell(
    threshold: float = 0.65,
    seed: int = 0,
    prompt: str = "a",
    settings: dict[str, Any] | None = None,
    **values: Any,
) -> Cell:
    """A cell with these values, and plausible ones in all other fields."""
    config = BranchingConfig(entropy_threshold=threshold, seed=seed, **(settings or {}))
    known: dict[str, Any] = {
        "group": "",
        "made": "run",
        "seconds": 0.5,
        "tokens": 100,
        "forks": 3,
        "paths": 4,
        "kv_bytes": 4096,
        "distinct_texts": 4,
        "distinct_answers": 2,
        "probability_seen": 0.5,
        "semantic_entropy": 0.6,
        "semantic_entropy_error": None,
        "distribution_error": None,
        "correct": None,
        "brier": None,
        "run_file": None,
    }
    return Cell(
        key=hashlib.sha256(f"{prompt} {config}".encode()).hexdigest()[:24],
        prompt_id=prompt,
        prompt=prompt,
        config=config,
        **known | values,
    )


def plan(cells: int) -> Plan:
    """The plan of a sweep of this many cells: one prompt under one setting."""
    return Plan(Grid(seeds=[*range(cells)]), (TuningPrompt("a", Question("A")),))
