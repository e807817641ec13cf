"""The charts, tables and sentences of a sweep agree with its cells and can be read."""

import contrast
import pandas as pd
import plotly.colors
from cells import sweep

from eab.config import BranchingConfig
from eab.labs.tuning import pictures
from eab.labs.tuning.frontier import SettingPoint, setting_points
from eab.labs.tuning.grid import COSTS, GAINS
from eab.labs.tuning.pictures import heat_figure
from eab.lessons import bundled_runs

TOKENS, ANSWERS, ERROR = COSTS["tokens"], GAINS["distinct_answers"], GAINS["distribution_error"]


def points(spread: float = 0.1) -> list[SettingPoint]:
    return setting_points(sweep(spread), TOKENS, ANSWERS)


def fair(spread: float = 0.1) -> list[SettingPoint]:
    return [point for point in points(spread) if not point.is_baseline]


def test_the_heat_map_has_a_tile_per_setting_and_leaves_missing_ones_empty() -> None:
    found = fair()[:3]
    heat, markers = pictures.heat_figure(found, ANSWERS, "entropy_threshold", "max_paths").data
    assert [list(row) for row in heat.z] == [[5.0, 2.0], [8.0, None]]
    assert (list(heat.x), list(heat.y)) == (["0.5", "1"], ["8", "16"])
    assert list(markers.customdata) == [0, 1, 2]
    assert markers.text[0] == "5<br>± 0.25"


def test_a_heat_map_of_one_setting_has_one_row_and_good_tiles_are_dark() -> None:
    found = [point for point in fair() if point.config.max_paths == 8]
    heat, _ = pictures.heat_figure(found, ANSWERS, "entropy_threshold", "").data
    assert [list(row) for row in heat.z] == [[5.0, 2.0]]
    assert not heat.reversescale
    less_is_better = pictures.heat_figure(fair(), ERROR, "entropy_threshold", "max_paths").data[0]
    assert less_is_better.reversescale


def test_the_tables_have_a_row_per_setting() -> None:
    rows = pictures.setting_rows(points(), TOKENS, ANSWERS)
    assert len(rows) == 6
    assert all(len(row) == len(pictures.HEADINGS) for row in rows)
    assert rows[0][1] == "100 ± 0 tokens"
    compared = {row[0]: row[3] for row in rows}
    assert compared["entropy threshold 1, max paths 8, policy fair"] == "+1 ± 0.5 answers"
    independent = [row for row in rows if "policy independent" in row[0]]
    assert [row[3] for row in independent] == ["–", "–"]
    assert all("threshold" not in row[0] for row in independent)
    table = pictures.settings_table(points(), TOKENS, ANSWERS)
    assert isinstance(table, pd.DataFrame)
    assert list(table["distinct_answers_mean"]) == [point.gain.value for point in points()]
    assert "seed" not in table.columns
    independent = BranchingConfig(policy="independent")
    assert pictures.setting_words(independent) == "max paths 20, policy independent"


def test_words_have_enough_contrast_with_every_colour_of_the_heat_map() -> None:
    gain = GAINS["distinct_answers"]
    points = setting_points(bundled_runs.tuning().cells, gain, gain)
    heat, markers = heat_figure(points, gain, "entropy_threshold", "max_paths").data
    ink = plotly.colors.hex_to_rgb(markers.textfont.color)
    for place in range(21):
        [tile] = plotly.colors.sample_colorscale(
            [list(one) for one in heat.colorscale], [place / 20], colortype="tuple"
        )
        assert contrast.contrast(ink, [255 * part for part in tile]) >= 4.5, place
