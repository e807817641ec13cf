"""Points of settings, the Pareto front, and independent sampling as the baseline."""

import pytest
from cells import cell
from hypothesis import given
from hypothesis import strategies as st

from eab.config import BranchingConfig
from eab.labs.tuning.cell import COSTS, GAINS
from eab.labs.tuning.frontier import (
    SettingPoint,
    baseline,
    beats,
    beyond_baseline,
    pareto_front,
    setting_points,
    varying,
)

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
