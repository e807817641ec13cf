"""The charts, tables and sentences of a sweep agree with its cells and do not report noise."""

from dataclasses import replace

import pandas as pd
import pytest
from cells import cell

from eab.config import BranchingConfig
from eab.labs.tuning import pictures as tuning
from eab.labs.tuning import sentences as tuning_words
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.frontier import SettingPoint, setting_points
from eab.labs.tuning.quantities import COSTS, GAINS
from eab.timing import NOTHING_YET

TOKENS, ANSWERS, ERROR = COSTS["tokens"], GAINS["distinct_answers"], GAINS["distribution_error"]


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


def points(spread: float = 0.1) -> list[SettingPoint]:
    return setting_points(sweep(spread), TOKENS, ANSWERS)


def fair(spread: float = 0.1) -> list[SettingPoint]:
    return [point for point in points(spread) if not point.is_baseline]


def test_the_heat_map_has_a_tile_per_setting_and_leaves_missing_ones_empty() -> None:
    found = fair()[:3]
    heat, markers = tuning.heat_figure(found, ANSWERS, "entropy_threshold", "max_paths").data
    assert [list(row) for row in heat.z] == [[5.0, 2.0], [8.0, None]]
    assert (list(heat.x), list(heat.y)) == (["0.5", "1"], ["8", "16"])
    assert list(markers.customdata) == [0, 1, 2]
    assert markers.text[0] == "5<br>± 0.25"


def test_a_heat_map_of_one_setting_has_one_row_and_good_tiles_are_dark() -> None:
    found = [point for point in fair() if point.config.max_paths == 8]
    heat, _ = tuning.heat_figure(found, ANSWERS, "entropy_threshold", "").data
    assert [list(row) for row in heat.z] == [[5.0, 2.0]]
    assert not heat.reversescale
    less_is_better = tuning.heat_figure(fair(), ERROR, "entropy_threshold", "max_paths").data[0]
    assert less_is_better.reversescale


def test_the_answer_is_the_best_setting_and_how_many_are_not_measurably_worse() -> None:
    words = tuning_words.answer_sentence(fair(), ANSWERS)
    assert words == (
        "Entropy threshold 0.5, max paths 16: distinct answers 8; every other setting is "
        "measurably worse."
    )
    assert tuning_words.answer_sentence(fair()[:1], ANSWERS).endswith(": distinct answers 5.")
    assert tuning_words.answer_sentence([], ANSWERS).startswith("No setting has run")
    some = [point for point in fair() if point.config.max_paths == 8]
    words = tuning_words.heat_sentence(some, ANSWERS, ["max_paths", "policy"])
    assert words == "Distinct answers with max paths 8, policy fair."
    assert tuning_words.heat_sentence([], ANSWERS) == NOTHING_YET


def test_of_equal_settings_the_cheapest_is_the_best() -> None:
    gains = {(0.5, 8): 4, (0.5, 16): 4, (1.0, 8): 1, (1.0, 16): 1, (1.5, 8): 1, (1.5, 16): 4}
    found = [
        cell(
            threshold,
            seed,
            settings={"max_paths": limit},
            distinct_answers=gain,
            tokens=100 * limit - int(threshold),
        )
        for (threshold, limit), gain in gains.items()
        for seed in range(8)
    ]
    words = tuning_words.answer_sentence(setting_points(found, TOKENS, ANSWERS), ANSWERS)
    assert words == (
        "Entropy threshold 0.5, max paths 8: distinct answers 4; 2 other settings are not "
        "measurably worse."
    )


def test_differences_within_the_error_are_not_reported() -> None:
    words = tuning_words.answer_sentence(fair(spread=20.0), ANSWERS)
    assert words.endswith("; 3 other settings are not measurably worse.")
    single = setting_points([cell(0.5, 1), cell(0.9, 1, distinct_answers=9)], TOKENS, ANSWERS)
    assert "1 other setting is not measurably worse" in tuning_words.answer_sentence(
        single, ANSWERS
    )
    assert "One seed has no interval" in tuning_words.over_words(single)


def test_the_pareto_chart_has_intervals_and_the_baseline() -> None:
    found = points()
    figure = tuning.pareto_figure(found, TOKENS, ANSWERS)
    series = {trace.name: trace for trace in figure.data}
    assert list(series["independent"].x) == [100, 400]
    assert list(series["independent"].y) == [1.0, 3.0]
    assert series["on the front"].error_y.array[0] == pytest.approx(0.248, abs=0.001)
    shown = sorted(number for one in figure.data if one.customdata for number in one.customdata)
    assert shown == list(range(len(found)))
    assert figure.layout.xaxis.title.text == "Tokens through the model per run"


def test_bytes_are_shown_in_a_readable_unit() -> None:
    found = setting_points(sweep(), COSTS["kv_bytes"], ANSWERS)
    figure = tuning.pareto_figure(found, COSTS["kv_bytes"], ANSWERS)
    assert figure.layout.xaxis.title.text == "Peak of the KV cache (KiB) per run"
    assert set(figure.data[-1].x) == {4.0}


def test_the_best_setting_is_compared_with_independent_sampling() -> None:
    found = points()
    words = tuning_words.sampling_sentence(found, ANSWERS)
    assert words == "At the same cost, independent sampling is measurably worse."
    less = replace(ANSWERS, more_is_better=False)
    assert "is the best" in tuning_words.sampling_sentence(found, less)
    noisy = tuning_words.sampling_sentence(points(spread=20.0), ANSWERS)
    assert noisy.endswith("is as good (no difference measured).")
    assert tuning_words.sampling_sentence([], ANSWERS) == NOTHING_YET
    assert "Add the policy independent" in tuning_words.sampling_sentence(fair(), ANSWERS)
    costly = [*fair(), replace(found[-1], costs={1: 9000.0, 2: 9000.0, 3: 9000.0})]
    assert "not tried" in tuning_words.sampling_sentence(costly, ANSWERS)


def test_there_are_at_most_two_short_sentences_above_a_picture() -> None:
    for spread in (0.1, 20.0):
        found = points(spread)
        fixed = ["max_paths", "policy"]
        for words in (
            tuning_words.heat_sentence(fair(spread), ANSWERS, fixed),
            tuning_words.sampling_sentence(found, ANSWERS),
            tuning_words.answer_sentence(found, ANSWERS),
        ):
            assert words.count(". ") <= 1
            assert len(words) < 150
            assert "±" not in words


def test_parallel_coordinates_have_an_axis_per_setting_and_two_more() -> None:
    figure = tuning.parallel_figure(points(), ["entropy_threshold", "policy"], TOKENS, ANSWERS)
    dimensions = figure.data[0].dimensions
    names = ["Entropy threshold", "Policy", "Tokens through the model", "Distinct answers"]
    assert [one.label.split(" (")[0] for one in dimensions] == names
    assert list(dimensions[0].ticktext) == ["no effect", "0.5", "1"]
    assert list(dimensions[0].values) == [1, 1, 2, 2, 0, 0]
    assert list(dimensions[1].ticktext) == ["fair", "independent"]
    assert list(dimensions[1].values) == [0, 0, 0, 0, 1, 1]


def test_the_sentence_names_the_setting_with_the_largest_effect() -> None:
    words = tuning_words.effects_sentence(points(), ["entropy_threshold", "max_paths"], ANSWERS)
    assert words.startswith(
        "Entropy threshold has the largest effect: from 0.5 to 1, the change in “Distinct answers” "
        "is -4.4"
    )
    rows = ((1.0, 1, 1), (2.0, 1, 9), (1.0, 2, 9), (2.0, 2, 2))
    cells = [cell(threshold, seed, distinct_answers=count) for threshold, seed, count in rows]
    noisy = setting_points(cells, TOKENS, ANSWERS)
    words = tuning_words.effects_sentence(noisy, ["entropy_threshold"], ANSWERS)
    assert "no difference measured" in words
    assert tuning_words.effects_sentence([], ["policy"], ANSWERS) == NOTHING_YET


def test_resimulated_cells_are_counted_and_cells_without_a_time_left_out() -> None:
    assert tuning_words.saving_sentence(sweep()).startswith("36 cells; 33% of them follow exactly")
    assert tuning_words.saving_sentence([]) == NOTHING_YET
    assert "12 cells of 36 are left out" in tuning_words.unknown_sentence(sweep(), COSTS["seconds"])
    assert tuning_words.unknown_sentence(sweep(), TOKENS) == ""


def test_the_tables_have_a_row_per_setting() -> None:
    rows = tuning_words.setting_rows(points(), TOKENS, ANSWERS)
    assert len(rows) == 6
    assert all(len(row) == len(tuning_words.HEADINGS) for row in rows)
    assert rows[0][1] == "100 ± 0 tokens"
    independent = [row for row in rows if "policy independent" in row[0]]
    assert [row[3] for row in independent] == ["–", "–"]
    assert all("threshold" not in row[0] for row in independent)
    table = tuning_words.settings_table(points(), TOKENS, ANSWERS)
    assert isinstance(table, pd.DataFrame)
    assert list(table["distinct_answers_mean"]) == [point.gain.value for point in points()]
    assert "seed" not in table.columns
    independent = BranchingConfig(policy="independent")
    assert tuning_words.setting_words(independent) == "max paths 20, policy independent"
