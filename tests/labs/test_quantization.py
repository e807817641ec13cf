"""The roofline and the files of formats, and what changed between two runs: worked out by hand."""

import pytest
from made_runs import bundled_run, run_of
from msgspec import structs

from eab.config import BranchingConfig
from eab.engine.models.loading import load_model
from eab.labs import measure_quantization as measure
from eab.labs.charts import chart_figure
from eab.labs.measurement import LabBegan, Report, Row, rows_table
from eab.labs.quantization import (
    FORMATS,
    ROOFLINE,
    ForkChange,
    Moved,
    RunPoint,
    bound,
    moved,
    moved_measures,
    moved_rows,
    ridge,
    roofline_chart,
    run_point,
    same_request,
    step_timings,
)
from eab.lessons import bundled_runs
from eab.run import RunState
from eab.run.events import RunEnded, StepTimed
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


PROMPT = "Grandma went to the market and bought some"


def story(weights: str, **settings: object) -> RunState:
    model = load_model(weights=weights)
    return run_of(model, PROMPT, max_new_tokens=8, max_paths=8, **settings)


def texts(run: RunState) -> dict[tuple[int, ...], float]:
    return {sample.token_ids: sample.weight for sample in run.samples}


def test_a_run_compared_with_itself_has_no_changes():
    run = bundled_run("bridge")
    found = moved(run, run)
    assert found.first is None
    assert found.appeared == found.vanished == ()
    assert found.weight == 0
    assert not same_request(run, run)  # the same weights


def test_forks_that_vanish_at_another_threshold_are_listed_with_their_entropy():
    fine, coarse = (story("as-loaded", entropy_threshold=one) for one in (0.3, 1.2))
    found = moved(fine, coarse)
    forked, kept = (sum(path.status == "forked" for path in run.paths) for run in (fine, coarse))
    assert len(found.vanished) - len(found.appeared) == forked - kept
    assert found.vanished
    for change in found.vanished:
        assert change.a >= 0.3
    swapped = moved(coarse, fine)
    assert [(one.text, one.b, one.a) for one in swapped.appeared] == [
        (one.text, one.a, one.b) for one in found.vanished
    ]


def test_first_token_and_weight_agree_with_the_texts():
    a, b = story("as-loaded"), story("nf4")
    assert same_request(a, b)
    found, ours, theirs = moved(a, b), texts(a), texts(b)
    common = sum(min(ours.get(one, 0), theirs.get(one, 0)) for one in ours)
    assert found.weight == pytest.approx(1 - common)
    assert found.first is not None or ours.keys() == theirs.keys()
    b.started = structs.replace(b.started, config=BranchingConfig(max_new_tokens=9))
    assert not same_request(a, b)


def test_the_recorded_run_in_four_bits_repeats_the_first_recording():
    b = bundled_runs.quantized().run
    assert b.started.model.weights == "int4"
    assert same_request(bundled_run("bridge"), b)


def test_what_appeared_and_vanished_is_counted():
    moved = Moved(7, (ForkChange(" a", 0.6, 0.7),), (ForkChange("", 0.9, None),) * 2, 0.25)
    assert [*moved_measures(moved).values()] == ["7", "2", "1", "25.0%"]
    assert [*moved_measures(Moved(None, (), (), 0.001)).values()] == ["none", "0", "0", "0.1%"]
    vanishes = ("the prompt", "vanishes", "0.9000 nats", "no such text")
    assert moved_rows(moved) == [vanishes] * 2 + [(" a", "appears", "0.6000 nats", "0.7000 nats")]
