"""Estimates of a policy over many seeds, on Markov chains with exactly known probabilities."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from equality import processed
from numpy.typing import NDArray
from stepping import Sample, Text, samples_of

from eab.config import BranchingConfig
from eab.engine.branching.policy import Policy
from eab.lessons.checks.policy import TableModel, mean_and_error, random_table

NOISE = 4.0  # standard errors
STOP = 5

FUNCTIONALS: dict[str, Callable[[Text], float]] = {
    "begins with 0": lambda text: float(text[0] == 0),
    "ends with 0": lambda text: float(text[-1] == 0),
    "ends with the stop token": lambda text: float(text[-1] == STOP),
    "length": len,
    "zeros": lambda text: text.count(0),
    "first is last": lambda text: float(text[0] == text[-1]),
}


@dataclass(frozen=True)
class Case:
    """A chain and the settings of runs on it.

    Attributes:
        chain: The seed of its table.
        size: The size of its vocabulary.
        settings: The settings that differ from `BASE`.
    """

    chain: int
    size: int
    settings: dict[str, Any]

    def config(self, policy: str, seed: int = 0) -> BranchingConfig:
        return BranchingConfig(policy=policy, seed=seed, **(BASE | self.settings))

    @property
    def max_paths(self) -> int:
        return self.config("fair").max_paths

    @property
    def model(self) -> TableModel:
        return TableModel(random_table(self.chain, self.size, 0.7), [STOP])

    @property
    def exact(self) -> TableModel:
        """The chain after temperature and filters, from which the policies sample."""
        logits = torch.from_numpy(self.model.table).log()
        return TableModel(processed(logits, self.config("fair")).exp().numpy(), [STOP])

    def texts(self) -> list[tuple[Text, float]]:
        """All texts with their probabilities."""
        return [*self.exact.all_texts(0, self.config("fair").max_new_tokens)]

    def runs(self, policy: str, seeds: Sequence[int]) -> Iterator[tuple[list[Sample], Policy]]:
        model = self.model
        return (samples_of(model, self.config(policy, seed)) for seed in seeds)


BASE = {"max_new_tokens": 4, "branch_factor": 4, "entropy_threshold": 1.0}


def _case(chain: int, size: int, **settings: Any) -> Case:
    return Case(chain, size, settings)


CASES = {f"limit {limit}": _case(10, 6, max_paths=limit) for limit in (1, 2, 3, 5, 13, 100)} | {
    "all paths fork": _case(
        15, 6, max_paths=6, branch_factor=2, entropy_threshold=0.0, max_new_tokens=5
    ),
    "light paths do not fork": _case(
        4, 6, max_paths=20, min_fork_weight=0.1, entropy_threshold=0.5
    ),
    "only alternatives": _case(10, 6, max_paths=100, branch_min_p=0.4, entropy_threshold=0.3),
    "few alternatives at the limit": _case(
        14, 7, max_paths=4, branch_min_p=0.25, entropy_threshold=0.3
    ),
    "filtered": _case(14, 7, max_paths=4, temperature=0.6, top_k=3, entropy_threshold=0.4),
    "more filters": _case(14, 7, max_paths=5, top_p=0.9, min_p=0.1, entropy_threshold=0.4),
    "fewer texts than paths": _case(2, 3, max_paths=100, max_new_tokens=3, entropy_threshold=0.8),
}
# A few cases with few seeds in every test run, and all cases with many seeds at night.
CASES_AND_SEEDS = [
    *(
        pytest.param(CASES[name], range(300), id=f"{name}, 300 seeds")
        for name in (
            *("limit 3", "limit 5", "filtered", "more filters"),
            *("only alternatives", "few alternatives at the limit"),
        )
    ),
    *(
        pytest.param(case, range(1000, 4000), id=f"{name}, 3000 seeds", marks=pytest.mark.nightly)
        for name, case in CASES.items()
    ),
]


def weighted(texts: Sequence[tuple[Text, float]]) -> list[float]:
    """The sum of weight x f(text), for each functional f."""
    return [math.fsum(weight * f(text) for text, weight in texts) for f in FUNCTIONALS.values()]


def assert_unbiased(
    estimates: Sequence[Sequence[float]],
    expected: Sequence[float] | NDArray[np.float64],
    error_of_expected: NDArray[np.float64] | float = 0.0,
) -> None:
    """Check that the mean over the seeds (rows) is the expected one in each column, up to noise."""
    z = standard_errors_off(estimates, expected, error_of_expected)
    print("z:", z.round(2).tolist())
    assert (np.abs(z) < NOISE).all(), z.round(2)


def standard_errors_off(
    estimates: Sequence[Sequence[float]],
    expected: Sequence[float] | NDArray[np.float64],
    error_of_expected: NDArray[np.float64] | float = 0.0,
) -> NDArray[np.float64]:
    """How many standard errors the mean of each column over the seeds (rows) is off.

    Raises:
        AssertionError: The estimates vary so much that a bias would go unnoticed.
    """
    exact, (means, errors) = np.asarray(expected), mean_and_error(estimates)
    errors = np.hypot(errors, error_of_expected)
    assert (errors < 0.15 * np.maximum(np.abs(exact), 0.2)).all(), "too noisy to tell"
    return (means - exact) / errors
