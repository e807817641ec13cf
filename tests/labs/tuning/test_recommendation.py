"""The recommended threshold, its prediction and the check."""

import pytest
from cells import cell

from eab.config import MAX_PATHS, BranchingConfig
from eab.errors import ConfigError
from eab.labs.tuning import recommendation_pictures as words_of
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.recommendation import (
    THRESHOLDS,
    Prediction,
    measured_means,
    pilot_config,
    recommend,
)


def pilot() -> list[Cell]:
    """Two prompts and three seeds; the number of paths falls with the threshold."""
    paths = {0.5: 24, 1.0: 12, 2.0: 3}
    return [
        cell(threshold, seed, prompt, paths=count + seed - 2 + wide, tokens=30 * count + wide)
        for threshold, count in paths.items()
        for seed in (1, 2, 3)
        for prompt, wide in (("a", -1), ("b", 1))
    ]


def test_the_threshold_nearest_to_the_wanted_paths() -> None:
    found = recommend(pilot(), "paths", 11, check_seeds=3)
    assert found.threshold == 1.0
    assert found.paths.value == 12.0
    assert found.tokens == Prediction(360.0, 360.0, 360.0)
    assert (found.prompts, found.seeds, found.reached) == (2, 3, True)
    assert found.beyond == (2.0, 3.0)
    assert found.paths.low is not None
    assert found.paths.high - 12 == pytest.approx(4.303 * (1 / 3 + 1 / 3) ** 0.5)
    assert recommend(pilot(), "tokens", 100).threshold == 2.0
    equally_near = [cell(threshold, 1, paths=5) for threshold in (0.5, 1.0, 0.8)]
    assert recommend(equally_near, "paths", 5).threshold == 1.0, "the highest of them"


@pytest.mark.parametrize(("wanted", "threshold"), [(200, 0.5), (1, 2.0)])
def test_what_no_threshold_of_the_pilot_reaches_is_said(wanted: int, threshold: float) -> None:
    found = recommend(pilot(), "paths", wanted)
    assert (found.threshold, found.reached, found.beyond) == (threshold, False, None)


def test_after_a_pilot_of_one_seed_there_is_no_interval_and_others_contain_their_ends() -> None:
    found = recommend([cell(0.5, 1, paths=5)], "paths", 5)
    assert found.paths == Prediction(5.0, None, None)
    assert found.paths.contains(5.0) is None
    interval = Prediction(5.0, 4.0, 6.0)
    assert [interval.contains(one) for one in (3.9, 4.0, 6.0, 6.1)] == [False, True, True, False]


def test_a_pilot_without_cells_is_explained() -> None:
    with pytest.raises(ConfigError, match="let it continue"):
        recommend([], "paths", 5)


def test_the_settings_of_a_pilot_keep_what_does_not_concern_the_tree() -> None:
    config = BranchingConfig(max_new_tokens=20, temperature=0.8, threshold_unit="quantile", seed=9)
    found = pilot_config(config, "paths", 12)
    assert (found.max_new_tokens, found.temperature) == (20, 0.8)
    assert (found.threshold_unit, found.entropy_threshold) == ("nats", THRESHOLDS[0])
    assert (found.min_fork_weight, found.max_paths, found.seed) == (0.0, 36, 0)
    assert pilot_config(config, "tokens", 400).max_paths == 60
    assert pilot_config(config, "paths", MAX_PATHS // 2).max_paths == MAX_PATHS


@pytest.mark.parametrize("number", [0, MAX_PATHS, float("nan")])
def test_what_cannot_be_wanted_is_explained(number: float) -> None:
    with pytest.raises(ConfigError, match="choose from 1 to 128"):
        pilot_config(BranchingConfig(), "paths", number)


def test_a_recommendation_says_what_it_rests_on_and_whether_it_held() -> None:
    pilot = [
        cell(one, seed, paths=count + seed, tokens=20 * count + 10 * seed)
        for one, count in ((0.5, 20), (1.0, 10))
        for seed in (1, 2, 3)
    ]
    found = recommend(pilot, "paths", 12, check_seeds=3)
    words = words_of.recommendation_sentence(found)
    assert words.startswith("Threshold 1 nats, for about 12 paths: 12 paths (8 to 16) for 220")
    assert "Predicted from 1 prompt and 3 seeds" in words
    assert "The next threshold" not in words
    between = words_of.recommendation_sentence(recommend(pilot, "paths", 15))
    assert "The next threshold, 0.5 nats, gives 22 paths." in between
    star = words_of.pilot_figure(pilot, found).data[1]
    assert (list(star.x), list(star.y)) == ([1.0], [12.0])
    assert words_of.check_sentence(found, {}).startswith("Not measured yet")
    checks = [cell(1.0, seed, paths=12 + seed % 2, tokens=220 + seed) for seed in (7, 8, 9)]
    near = measured_means(checks)
    assert "both inside" in words_of.check_sentence(found, near)
    assert [row[3] for row in words_of.check_rows(found, near)] == ["yes", "yes"]
    far = measured_means([cell(1.0, seed, paths=40, tokens=220) for seed in (7, 8, 9)])
    assert "paths are outside" in words_of.check_sentence(found, far)
    one = recommend(pilot[:1], "paths", 12)
    assert "which has no interval" in words_of.recommendation_sentence(one)
    assert "has no interval" in words_of.check_sentence(one, near)
