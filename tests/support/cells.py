"""Cells of invented sweeps, for tests of what is computed from cells."""

import hashlib
from typing import Any

from eab.config import BranchingConfig
from eab.labs.tuning.grid import Cell, Grid
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


def sweep(spread: float = 0.1) -> list[Cell]:
    """Two thresholds and two path limits, and independent sampling; three seeds, two prompts."""
    rows = [
        ("fair", 0.5, 8, 200, 5.0),
        ("fair", 0.5, 16, 400, 8.0),
        ("fair", 1.0, 8, 100, 2.0),
        ("fair", 1.0, 16, 300, 2.1),
        ("independent", 0.5, 8, 100, 1.0),
        ("independent", 0.5, 16, 400, 3.0),
    ]
    return [
        cell(
            threshold,
            seed,
            prompt,
            {"policy": policy, "max_paths": limit},
            tokens=tokens,
            distinct_answers=answers
            + spread * (seed - 2) * (1 if (limit == 8) == (policy == "fair") else -1),
            made="run" if threshold == 0.5 else "resimulated",
            seconds=0.1 if threshold == 0.5 else None,
        )
        for policy, threshold, limit, tokens, answers in rows
        for seed in (1, 2, 3)
        for prompt in ("a", "b")
    ]
