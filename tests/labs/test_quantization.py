"""The answers, charts and tables about formats and the roofline agree with the rows, which are bundled
or made by hand.
"""

from made_runs import bundled_run

from eab.events import RunEnded, StepTimed
from eab.labs import measure_quantization as measure
from eab.labs.charts import chart_figure
from eab.labs.measurement import LabBegan, Report, Row, rows_table
from eab.labs.quantization import (
    FORMATS,
    ROOFLINE,
    RunPoint,
    bound,
    ridge,
    roofline_chart,
    run_point,
    step_timings,
)
from eab.lessons import bundled_runs
from eab.weight_formats import AS_LOADED, WEIGHT_FORMATS
from training.choices import FIXED_CHOICES, entropy_bits, known_distributions

SLOW, FAST = (4.0,) * 7, (2.0,) * 7
BETWEEN = (1.9, 1.9, 1.9, 3.9, 6.0, 6.0, 6.0)


def one(weights: str, seconds: tuple[float, ...], divergence: float) -> list[Row]:
    """A format whose steps with 1 and 16 rows take so long; as loaded, they take 4 s."""
    size = {AS_LOADED: 4}.get(weights, 2) * 2**30
    quality = {"nats_per_character": 1.0 + divergence, "divergence": divergence}
    quality |= {"flipped": divergence / 10, "prompt_divergence": 0.5, "entropy_error": None}
    sizes = {"total_bytes": size, "read_bytes": size, "parameters": 2**30, "kept": 0}
    steps = [
        Row("steps", {"weights": weights, "rows": rows, "seconds": ours, "loaded_seconds": 4.0})
        for rows, each in ((1, seconds), (16, SLOW))
        for ours in each
    ]
    return [*steps, Row("formats", {"weights": weights, **sizes, **quality})]


def report(*formats: list[Row]) -> Report:
    about = {"prompt": "A", "tokens": 300, "threshold": 0.65}
    began = LabBegan("tiny", "float32", "a machine", "formats", about)
    machine = Row("machine", {"bytes_per_second": 2**30, "operations_per_second": 2.0**33})
    return Report().collect([began, machine, *(row for rows in formats for row in rows)])


def test_the_weights_as_loaded_have_the_repeats_of_all_comparisons():
    made = report(one(AS_LOADED, SLOW, 0.0), one("int8", FAST, 0.1), one("nf4", FAST, 0.1))
    for weights, count in ((AS_LOADED, 3 * 7), ("int8", 7)):
        for step in step_timings(made, weights):
            assert len(step.ours.seconds) == count
    assert step_timings(made, AS_LOADED)[0].ours == step_timings(made, AS_LOADED)[0].loaded


def test_the_chart_and_the_download_have_every_format():
    made = bundled_runs.formats()
    assert made.complete
    formats = made.rows("formats")
    assert [row["weights"] for row in formats] == list(WEIGHT_FORMATS)
    assert formats[0]["divergence"] == formats[0]["flipped"] == 0
    figure = chart_figure(FORMATS.chart(made))
    assert {line.name: line.y[0] for line in figure.data} == {
        row["weights"]: row["divergence"] for row in formats[1:]
    }
    for line in figure.data:  # every point of the log axis has a tick near it
        ticks = figure.layout.yaxis.tickvals
        assert min(max(tick / y, y / tick) for tick in ticks for y in line.y) < 1.6
    assert "divergence (nats)" in rows_table(made, "formats", FORMATS.units)
    assert made.ended == RunEnded(0, "finished")


def test_the_roofline_has_bounds_measurements_and_the_run():
    made = report(one(AS_LOADED, SLOW, 0.0), one("int8", FAST, 0.1))
    lines = {line.name: line for line in chart_figure(roofline_chart(made, RunPoint(3, 5))).data}
    shown = [f"{name}: {what}" for name in ("as-loaded", "int8") for what in ("bound", "measured")]
    assert set(lines) == {*shown, "your run"}
    # 4 GiB at 1 GiB/s; multiplying takes a quarter of a second per row
    full = made.rows("formats")[0]
    assert lines["as-loaded: bound"].y[0] == 1000 * bound(made, full, 1) == 4000
    assert bound(made, full, 32) == 8
    assert ridge(made, full) == 16
    assert (lines["your run"].x[0], lines["your run"].y[0]) == (3.0, 5000.0)
    words = ROOFLINE.answer(made)
    assert "Up to 16 rows" in words
    assert "takes 4,000 ms, 1× the bound" in words


def test_the_point_of_a_run_is_its_median_decode_pass():
    run = bundled_run("bridge")
    for step in run.steps:
        step.timing = StepTimed(step.step, 3 if step.step else 100, 0.5, 0.25)
    assert run_point(run) == (3, 0.25)
    for step in run.steps:
        step.timing = None
    assert run_point(run) is None


def test_the_held_out_texts_exist_and_known_entropies_fit_the_training_data():
    assert len(measure.held_out_texts()) == 24
    known, truth = measure.known_entropies(), known_distributions(FIXED_CHOICES)
    assert known.keys() == truth.keys()
    for prompt, bits in known.items():
        assert 0 <= bits <= entropy_bits(truth[prompt]) + 1e-6
