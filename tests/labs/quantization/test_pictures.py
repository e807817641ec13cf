"""The charts, table and sentences about formats and the roofline agree with the report."""

import pytest

from eab.labs.quantization import pictures as weight_formats
from eab.labs.quantization import roofline_picture as roofline
from eab.labs.quantization.results import (
    FormatMeasured,
    FormatMissing,
    FormatReport,
    FormatsBegan,
    FormatStep,
    MachineMeasured,
    RunPoint,
    bound,
)
from eab.lessons import bundled_runs
from eab.timing import NOTHING_YET
from eab.weight_formats import AS_LOADED

SLOW, FAST = (4.0,) * 7, (2.0,) * 7
BETWEEN = (1.9, 1.9, 1.9, 3.9, 6.0, 6.0, 6.0)


def one(weights: str, seconds: tuple[float, ...], divergence: float) -> FormatMeasured:
    steps = (FormatStep(1, seconds, SLOW), FormatStep(16, SLOW, SLOW))
    size = {AS_LOADED: 4}.get(weights, 2) * 2**30
    quality = (1.0 + divergence, divergence, divergence / 10, 0.5, None)
    return FormatMeasured(weights, size, size, 2**30, 0, steps, *quality)


def report(*formats: FormatMeasured) -> FormatReport:
    began = FormatsBegan("tiny", "float32", "a machine", "plain", "A", 900, 300, 0.65, 0)
    machine = MachineMeasured((2**30, 2**30), (2.0**33, 2.0**33))
    return FormatReport().collect([began, machine, *formats])


def test_faster_and_slower_formats_are_reported_and_noise_is_not():
    made = report(
        one(AS_LOADED, SLOW, 0.0),
        one("int8", FAST, 0.1),
        one("int4", BETWEEN, 0.2),
        one("nf4", (9,) * 7, 0.3),
    )
    words = weight_formats.formats_sentence(made)
    assert "With int8, for 1.00% of the tokens" in words
    assert weight_formats.steps_sentence(made).endswith("int8 2× with 1 row.")
    rows = {cells[0]: cells for cells in weight_formats.format_rows(made)}
    assert rows["int8"][1:4] == ("2.0 GiB", "2,000 ms", "2.00 times as fast")
    assert rows["int4"][3] == "no difference measured"
    assert rows["nf4"][4:] == ("1.3000", "0.3000", "0.5000", "3.00%", "–")
    words = weight_formats.quality_sentence(made)
    assert "int8 moves the next-token distribution least (0.1000" in words
    made = report(one(AS_LOADED, SLOW, 0.0), one("int4", BETWEEN, 0.2))
    assert "no difference measured" in weight_formats.steps_sentence(made)


def test_the_charts_have_every_format_with_its_spread():
    made = bundled_runs.formats()
    bars = weight_formats.steps_figure(made).data
    assert [bar.name for bar in bars] == ["1 row", "4 rows", "16 rows", "64 rows"]
    for bar, step in zip(bars, made.formats[0].steps, strict=True):
        assert bar.y[0] == pytest.approx(1000 * step.timing.median)
        assert bar.y[0] + bar.error_y.array[0] == pytest.approx(1000 * step.timing.high)
    drawn = {line.name: line.y[0] for line in weight_formats.quality_figure(made).data}
    assert drawn == {one.weights: one.divergence for one in made.formats[1:]}
    assert len(weight_formats.formats_table(made)) == 4 * len(made.formats)


def test_every_point_of_the_log_axis_has_a_tick_near_it():
    figure = weight_formats.quality_figure(bundled_runs.formats())
    ticks = figure.layout.yaxis.tickvals
    for line in figure.data:
        assert min(max(tick / y, y / tick) for tick in ticks for y in line.y) < 1.6


def test_the_roofline_has_bounds_measurements_and_the_run():
    made = report(one(AS_LOADED, SLOW, 0.0), one("int8", FAST, 0.1))
    point = RunPoint(3.0, 5.0)
    lines = {line.name: line for line in roofline.roofline_figure(made, point).data}
    shown = [f"{name}: {what}" for name in ("as-loaded", "int8") for what in ("bound", "measured")]
    assert set(lines) == {*shown, "your run"}
    assert lines["as-loaded: bound"].y[0] == 1000 * bound(made.formats[0], made.machine, 1) == 4000
    assert (lines["your run"].x[0], lines["your run"].y[0]) == (3.0, 5000.0)
    words = roofline.roofline_sentence(made)
    assert "Up to 16 rows" in words
    assert "takes 4,000 ms, 1× the bound" in words


def test_an_empty_report_says_that_nothing_is_measured():
    empty = FormatReport()
    for name in ("formats_sentence", "steps_sentence", "quality_sentence"):
        assert getattr(weight_formats, name)(empty) == NOTHING_YET
    assert roofline.roofline_sentence(empty) == NOTHING_YET
    assert not roofline.roofline_figure(empty).data
    assert not weight_formats.steps_figure(empty).data


def test_a_missing_format_is_named_with_its_reason():
    made = report(one(AS_LOADED, SLOW, 0.0))
    assert weight_formats.missing_sentence(made) == ""
    made.apply(FormatMissing("int8", "this machine cannot compute it"))
    words = weight_formats.missing_sentence(made)
    assert words == "Not measured: int8. This machine cannot compute it."
