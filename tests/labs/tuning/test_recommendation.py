"""The recommended threshold, its prediction, and the check of the prediction."""

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
from cells import cell
from hypothesis import given
from hypothesis import strategies as st

from eab.config import MAX_PATHS, BranchingConfig
from eab.errors import ConfigError
from eab.labs.tuning import recommendation as words_of
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.pictures import pilot_figure
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.recommendation import (
    CHECK_SEEDS,
    MOST_REFINEMENTS,
    PILOT_SEEDS,
    THRESHOLDS,
    interval,
    measured_means,
    next_threshold,
    pilot_config,
    recommend,
)
from eab.labs.tuning.report import TuningReport
from eab.labs.tuning.sweeping import report_sweep, sweep
from eab.models.huggingface import HuggingFaceModel

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


def test_the_threshold_nearest_to_the_wanted_number_of_paths_is_recommended() -> None:
    found = recommend(pilot(), "paths", 11)
    assert found.threshold == 1.0
    assert found.predicted["paths"].value == 12.0
    assert interval(found.predicted["tokens"]) == (360.0, 360.0)
    assert found.predicted["paths"].seeds == 3
    assert found.beyond == (2.0, 3.0)
    _, high = interval(found.predicted["paths"])
    assert high - 12 == pytest.approx(4.303 * (1 / 3 + 1 / CHECK_SEEDS) ** 0.5)
    assert recommend(pilot(), "tokens", 100).threshold == 2.0
    equally_near = [cell(threshold, 1, paths=5) for threshold in (0.5, 1.0, 0.8)]
    assert recommend(equally_near, "paths", 5).threshold == 1.0, "the highest of them"


@pytest.mark.parametrize(("wanted", "threshold"), [(200, 0.5), (1, 2.0)])
def test_a_wanted_number_out_of_reach_is_marked_as_such(wanted: int, threshold: float) -> None:
    found = recommend(pilot(), "paths", wanted)
    assert (found.threshold, found.near, found.beyond) == (threshold, False, None)


def test_one_seed_gives_no_interval() -> None:
    found = recommend([cell(0.5, 1, paths=5)], "paths", 5)
    assert found.predicted["paths"].value == 5.0
    assert interval(found.predicted["paths"]) is None


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


def test_a_recommendation_says_whether_the_check_confirmed_it() -> None:
    pilot = [
        cell(one, seed, paths=count + seed, tokens=20 * count + 10 * seed)
        for one, count in ((0.5, 20), (1.0, 10))
        for seed in (1, 2, 3)
    ]
    found = recommend(pilot, "paths", 12)
    assert words_of.recommendation_sentence(found) == (
        "Threshold 1 nats; paths per run: 12 on average (target 12)."
    )
    assert words_of.check_rows(found, {})[0][1] == "12 (9 to 15)"
    for unit, wanted, words in (
        ("paths", 15, "On average: 22 at 0.5 nats, 12 at 1 nats. Press Predict to look between"),
        ("tokens", 220, "Threshold 1 nats; tokens per run: 220 on average (target 220)."),
        ("paths", 40, "No threshold that was tried gives 40 paths per run. On average: 22 at 0.5"),
    ):
        assert words in words_of.recommendation_sentence(recommend(pilot, unit, wanted))
    star = pilot_figure(pilot, found).data[1]
    assert (list(star.x), list(star.y)) == ([1.0], [12.0])
    assert words_of.check_rows(found, {})[0][2] == "not measured yet"
    checks = [cell(1.0, seed, paths=12 + seed % 2, tokens=220 + seed) for seed in (7, 8, 9)]
    near = measured_means(checks)
    assert [row[3] for row in words_of.check_rows(found, near)] == ["yes", "yes"]
    far = measured_means([cell(1.0, seed, paths=40, tokens=220) for seed in (7, 8, 9)])
    assert [row[3] for row in words_of.check_rows(found, far)] == ["no", "yes"]
    one = recommend(pilot[:1], "paths", 12)
    assert [row[3] for row in words_of.check_rows(one, near)] == ["–", "–"]


def test_a_mean_that_matches_within_the_noise_is_recommended_with_its_value() -> None:
    noisy = [cell(1.0, seed, paths=count) for seed, count in enumerate((5, 12, 16))]
    words = words_of.recommendation_sentence(recommend(noisy, "paths", 12))
    assert words == "Threshold 1 nats; paths per run: 11 on average (target 12)."


def refined(paths: Callable[[float], float], wanted: float) -> tuple[list[Cell], list[float]]:
    """The cells of a refined pilot with these mean paths by threshold, and the added thresholds."""
    cells: list[Cell] = []
    added: list[float] = []

    def run(threshold: float) -> None:
        mean = paths(threshold)
        cells.extend(cell(threshold, seed, paths=round(mean * 100)) for seed in (1, 2))

    for threshold in THRESHOLDS:
        run(threshold)
    while (found := next_threshold(cells, "paths", wanted * 100)) is not None:
        added.append(found)
        run(found)
    return cells, added


@given(st.floats(1.2, 60.0), st.floats(0.5, 3.0))
def test_thresholds_are_added_until_the_wanted_number_is_bracketed(
    wanted: float, power: float
) -> None:
    cells, added = refined(lambda threshold: 8.0 / threshold**power, wanted)
    found = recommend(cells, "paths", wanted * 100)
    assert len(added) <= MOST_REFINEMENTS
    assert len(added) == len(set(added))
    inside = 8.0 / 3.0**power < wanted < 8.0 / 0.3**power
    if inside:
        sides = [found.threshold, *([found.beyond[0]] if found.beyond else [])]
        assert found.near or found.jumps
        assert found.near or max(sides) / min(sides) <= 1.031


def test_both_sides_of_a_jump_of_the_mean_are_given() -> None:
    cells, added = refined(lambda threshold: 15.0 if threshold < 1.03 else 9.0, 12.0)
    found = recommend(cells, "paths", 1200)
    assert 3 <= len(added) <= MOST_REFINEMENTS
    assert found.jumps
    words = words_of.recommendation_sentence(found)
    assert words.startswith("No threshold that was tried gives 1,200 paths per run.")
    assert words.endswith("900 at 1.03 nats.")


def test_after_a_refinement_the_interval_has_its_nominal_coverage() -> None:
    drawn = random.Random(0)
    entropies: defaultdict[int, list[float]] = defaultdict(
        lambda: [drawn.expovariate(1) for _ in range(60) if drawn.random() < 0.5]
    )
    held = 0
    for number in range(SWEEPS):
        seeds = range(100 * number, 100 * number + PILOT_SEEDS)
        cells: list[Cell] = []
        left: list[float | None] = [*THRESHOLDS]
        while (threshold := left.pop()) is not None:
            cells += [
                cell(threshold, seed, paths=paths(entropies[seed], threshold)) for seed in seeds
            ]
            left = left or [next_threshold(cells, "paths", 8)]
        found = recommend(cells, "paths", 8)
        others = range(seeds.stop, seeds.stop + CHECK_SEEDS)
        fresh = [paths(entropies[seed], found.threshold) for seed in others]
        low, high = interval(found.predicted["paths"])
        held += low <= statistics.mean(fresh) <= high
    assert held / SWEEPS > 0.95 - 3.3 * (0.95 * 0.05 / SWEEPS) ** 0.5


def paths(entropies: Sequence[float], threshold: float) -> int:
    """The path count of a run that forks in two at each of these entropies above the threshold."""
    return 1 + sum(entropy > threshold for entropy in entropies)


def test_a_pilot_is_not_refined_if_it_is_near_or_brackets_nothing() -> None:
    assert next_threshold(pilot(), "paths", 12) is None, "a mean is there"
    assert next_threshold(pilot(), "paths", 12.2) is None, "within 3%"
    assert next_threshold(pilot(), "paths", 200) is None
    assert next_threshold([], "paths", 5) is None
    assert next_threshold(pilot(), "paths", 18) == pytest.approx(0.5**0.5, abs=1e-3)
    assert next_threshold(pilot(), "tokens", 200) == pytest.approx(2**0.5, abs=1e-2)


def test_the_pilot_of_a_model_is_refined_without_running_it_again(
    embedded: HuggingFaceModel,
) -> None:
    prompts = [TuningPrompt("a", Question("I tossed a coin and it landed on", (), {}, ""))]
    config = pilot_config(BranchingConfig(max_new_tokens=6), "paths", 6)
    grid = Grid({"entropy_threshold": THRESHOLDS}, config, range(1, 7))
    report = TuningReport().collect(report_sweep(embedded, prompts, grid, target=("paths", 6.0)))
    assert report.complete
    assert next_threshold(report.cells, "paths", 6.0) is None
    found = recommend(report.cells, "paths", 6.0)
    assert found.near or found.jumps
    added = [one for one in report.cells if one.config.entropy_threshold not in THRESHOLDS]
    assert added
    assert {one.made for one in added} == {"resimulated"}
    anew = Grid({"entropy_threshold": [added[0].config.entropy_threshold]}, config, range(1, 7))
    alone = [one for step in sweep(embedded, prompts, anew) for one in step.cells]
    counts = {one.key: one.paths for one in alone}
    assert counts == {one.key: one.paths for one in added if one.key in counts}
