"""The recommended threshold and its prediction."""

import random
import statistics
from collections import defaultdict
from collections.abc import Sequence

import pytest
from cells import cell

from eab.config import MAX_PATHS, BranchingConfig
from eab.errors import ConfigError
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.frontier import (
    OTHER_SEEDS,
    PILOT_SEEDS,
    THRESHOLDS,
    interval,
    pilot_config,
    recommend,
)
from eab.labs.tuning.pictures import pilot_figure

SWEEPS = 80  # the interval must hold in 95% of them, minus 3.3 standard errors


def pilot() -> list[Cell]:
    """Cells of two prompts and three seeds; a higher threshold gives fewer paths."""
    paths = {0.5: 24, 1.0: 12, 2.0: 3}
    return [
        cell(threshold, seed, prompt, paths=count + seed - 2 + wide, tokens=30 * count + wide)
        for threshold, count in paths.items()
        for seed in (1, 2, 3)
        for prompt, wide in (("a", -1), ("b", 1))
    ]


def test_the_threshold_nearest_to_the_wanted_number_is_recommended() -> None:
    found = recommend(pilot(), "paths", 11)
    assert found.config.entropy_threshold == 1.0
    assert found.predicted["paths"].value == 12.0
    assert interval(found.predicted["tokens"]) == (360.0, 360.0)
    assert found.predicted["paths"].seeds == 3
    _, high = interval(found.predicted["paths"])
    assert high - 12 == pytest.approx(4.303 * (1 / 3 + 1 / OTHER_SEEDS) ** 0.5)
    assert found.rows() == [
        ("Threshold", "1 nats", ""),
        ("Paths per run", "12", "9 to 15"),
        ("Tokens per run", "360", "360 to 360"),
    ]
    star = pilot_figure(pilot(), "paths", 11, found).data[1]
    assert (list(star.x), list(star.y)) == ([1.0], [12.0])


@pytest.mark.parametrize(
    ("unit", "wanted", "threshold"),
    [("tokens", 100, 2.0), ("paths", 200, 0.5), ("paths", 1, 2.0)],
)
def test_a_number_out_of_reach_gives_the_nearest_threshold(
    unit: str, wanted: int, threshold: float
) -> None:
    assert recommend(pilot(), unit, wanted).config.entropy_threshold == threshold


def test_of_equally_near_thresholds_the_highest_is_recommended() -> None:
    equally_near = [cell(threshold, 1, paths=5) for threshold in (0.5, 1.0, 0.8)]
    found = recommend(equally_near, "paths", 5)
    assert found.config.entropy_threshold == 1.0
    assert interval(found.predicted["paths"]) is None, "one seed"
    assert found.rows()[1] == ("Paths per run", "5", "")


def test_a_pilot_without_cells_is_explained() -> None:
    with pytest.raises(ConfigError, match="let it continue"):
        recommend([], "paths", 5)


def test_a_pilot_keeps_the_settings_that_do_not_concern_the_tree() -> None:
    config = BranchingConfig(
        max_new_tokens=20, temperature=0.8, threshold_unit="rank", entropy_threshold=3, seed=9
    )
    found = pilot_config(config, "paths", 12)
    assert (found.max_new_tokens, found.temperature) == (20, 0.8)
    assert (found.threshold_unit, found.entropy_threshold) == ("nats", THRESHOLDS[0])
    assert (found.min_fork_weight, found.max_paths, found.seed) == (0.0, 36, 0)
    assert pilot_config(config, "tokens", 400).max_paths == 60
    assert pilot_config(config, "paths", MAX_PATHS // 2).max_paths == MAX_PATHS


@pytest.mark.parametrize("number", [0, MAX_PATHS, float("nan")])
def test_an_invalid_wanted_number_is_explained(number: float) -> None:
    with pytest.raises(ConfigError, match="choose from 1 to 128"):
        pilot_config(BranchingConfig(), "paths", number)


def test_the_interval_has_its_nominal_coverage() -> None:
    drawn = random.Random(0)
    entropies: defaultdict[int, list[float]] = defaultdict(
        lambda: [drawn.expovariate(1) for _ in range(60) if drawn.random() < 0.5]
    )
    held = 0
    for number in range(SWEEPS):
        seeds = range(100 * number, 100 * number + PILOT_SEEDS)
        cells = [
            cell(threshold, seed, paths=paths(entropies[seed], threshold))
            for threshold in THRESHOLDS
            for seed in seeds
        ]
        found = recommend(cells, "paths", 8)
        others = range(seeds.stop, seeds.stop + OTHER_SEEDS)
        fresh = [paths(entropies[seed], found.config.entropy_threshold) for seed in others]
        low, high = interval(found.predicted["paths"])
        held += low <= statistics.mean(fresh) <= high
    assert held / SWEEPS > 0.95 - 3.3 * (0.95 * 0.05 / SWEEPS) ** 0.5


def paths(entropies: Sequence[float], threshold: float) -> int:
    """The path count of a run that forks in two at each of these entropies above the threshold."""
    return 1 + sum(entropy > threshold for entropy in entropies)
