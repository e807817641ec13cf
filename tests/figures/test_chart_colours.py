"""Words on the tiles of the heat map have enough contrast with its colours."""

import contrast
import plotly.colors

from eab.labs.tuning.cell import GAINS
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.pictures import heat_figure
from eab.lessons import bundled_runs


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
