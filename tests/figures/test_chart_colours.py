"""Words on the tiles of the icicle and the heat map have enough contrast with their colours."""

import contrast
import plotly.colors
import pytest

from eab.figures.icicle import icicle_figure
from eab.labs.tuning.cell import GAINS
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.pictures import heat_figure
from eab.lessons import bundled_runs
from eab.run import fold


@pytest.mark.parametrize("recording", bundled_runs.recordings(), ids=lambda one: one.file)
def test_words_have_enough_contrast_with_their_tile(recording: bundled_runs.Recording) -> None:
    [icicle] = icicle_figure(fold(bundled_runs.events_of(recording))).data
    scale = [list(one) for one in icicle.marker.colorscale]
    inks = {"black": (0, 0, 0), "white": (255, 255, 255)}
    for entropy, ink in zip(icicle.marker.colors, icicle.textfont.color, strict=True):
        [tile] = plotly.colors.sample_colorscale(
            scale, [entropy / icicle.marker.cmax], colortype="tuple"
        )
        ground = [255 * part for part in tile]
        assert contrast.contrast(inks[ink], ground) >= 4.5, entropy


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
