"""Points of settings, the Pareto front, independent sampling as the baseline; the recommended threshold."""

import random
import statistics
from collections import defaultdict
from collections.abc import Sequence

import pytest
from cells import cell
from hypothesis import given
from hypothesis import strategies as st

from eab.config import MAX_PATHS, BranchingConfig
from eab.errors import ConfigError
from eab.labs.tuning.frontier import (
    OTHER_SEEDS,
    PILOT_SEEDS,
    THRESHOLDS,
    SettingPoint,
    baseline,
    beats,
    beyond_baseline,
    interval,
    pareto_front,
    pilot_config,
    recommend,
    setting_points,
    varying,
)
from eab.labs.tuning.grid import COSTS, GAINS, Cell
from eab.labs.tuning.pictures import pilot_figure

TOKENS, ANSWERS, ERROR = COSTS["tokens"], GAINS["distinct_answers"], GAINS["distribution_error"]


def point(cost: float, *gains: float, policy: str = "fair", threshold: float = 0.5) -> SettingPoint:
    """The point of a setting, with one gain per seed."""
    config = BranchingConfig(policy=policy, entropy_threshold=threshold)  # type: ignore[arg-type]
    by_seed = dict(enumerate(gains))
    return SettingPoint(config, dict.fromkeys(by_seed, cost), by_seed, len(gains))


def test_a_point_is_the_mean_over_prompts_and_then_over_seeds() -> None:
    rows = ((1, "a", 100, 2), (1, "b", 300, 4), (2, "a", 120, 1), (2, "b", 280, 3))
    cells = [
        cell(0.5, seed, prompt, tokens=tokens, distinct_answers=answers)
        for seed, prompt, tokens, answers in rows
    ]
    [found] = setting_points(cells, TOKENS, ANSWERS)
    assert found.costs == {1: 200.0, 2: 200.0}
    assert found.gains == {1: 3.0, 2: 2.0}
    assert (found.gain.value, found.gain.error, found.cells) == (2.5, pytest.approx(0.5), 4)
    assert found.config.seed == 0


def test_settings_with_missing_cells_are_left_out() -> None:
    cells = [cell(0.5, 1, "a"), cell(0.5, 1, "b"), cell(0.5, 2, "a"), cell(0.9, 1, "a")]
    [found] = setting_points(cells, TOKENS, ANSWERS)
    assert found.config.entropy_threshold == 0.5
    assert set(found.gains) == {1}


def test_a_gain_that_needs_a_known_answer_ignores_prompts_without_one() -> None:
    cells = [cell(0.5, 1, "coin", distribution_error=0.1), cell(0.5, 1, "story")]
    [found] = setting_points(cells, TOKENS, ERROR)
    assert found.gains == {1: 0.1}
    assert setting_points([cell(0.5, 1, "story")], TOKENS, ERROR) == []


def test_time_is_unknown_where_a_cell_was_resimulated() -> None:
    cells = [cell(0.5, 1, seconds=2.0), cell(0.9, 1, seconds=None, made="resimulated")]
    [found] = setting_points(cells, COSTS["seconds"], ANSWERS)
    assert found.config.entropy_threshold == 0.5


def test_varying_names_the_settings_that_differ_without_the_seed() -> None:
    configs = [BranchingConfig(entropy_threshold=one, seed=int(10 * one)) for one in (0.5, 0.9)]
    assert varying(configs) == ["entropy_threshold"]
    assert varying(configs[:1]) == []


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=12),
    st.booleans(),
)
def test_the_front_has_all_undominated_points(places: list[tuple[int, int]], more: bool) -> None:
    gain, sign = (ANSWERS, 1) if more else (ERROR, -1)
    points = [point(*place) for place in places]

    def dominated(one: SettingPoint) -> bool:
        return any(
            other.cost.value <= one.cost.value
            and sign * other.gain.value >= sign * one.gain.value
            and (other.cost.value, other.gain.value) != (one.cost.value, one.gain.value)
            for other in points
        )

    front = pareto_front(points, gain)
    assert {id(one) for one in front} == {id(one) for one in points if not dominated(one)}
    costs = [one.cost.value for one in front]
    assert costs == sorted(costs)


def test_independent_sampling_is_interpolated_and_never_extrapolated() -> None:
    far = point(400, 3.0, 5.0, policy="independent")
    line = baseline([far, point(100, 1.0, 2.0, policy="independent"), point(200, 9.0)])
    assert [one.cost.value for one in line] == [100, 400]
    found = beyond_baseline(point(200, 4.0, 4.0), line)
    assert found.value == pytest.approx(((4 - 2) + (4 - 3.5)) / 2)
    assert found.seeds == 2
    at_a_point = beyond_baseline(point(400, 4.0, 6.0), line)
    assert (at_a_point.value, at_a_point.error) == (1.0, 0.0)
    assert beyond_baseline(point(99, 4.0, 4.0), line) is None
    assert beyond_baseline(point(401, 4.0, 4.0), line) is None
    assert beyond_baseline(point(200, 4.0), []) is None
    twice = [point(100, 1.0, policy="independent", threshold=one) for one in (0.5, 0.9)]
    assert len(baseline(twice)) == 1, "equal costs count once"


def test_a_difference_within_the_error_is_undecided() -> None:
    assert beats(point(1, 5.0, 6.0, 7.0), point(1, 1.0, 2.0, 3.1), ANSWERS) is True
    assert beats(point(1, 1.0, 2.0, 3.1), point(1, 5.0, 6.0, 7.0), ANSWERS) is False
    assert beats(point(1, 1.0, 2.0, 3.1), point(1, 5.0, 6.0, 7.0), ERROR) is True
    assert beats(point(1, 1.0, 9.0), point(1, 5.0, 4.0), ANSWERS) is None
    assert beats(point(1, 9.0), point(1, 1.0), ANSWERS) is None


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
