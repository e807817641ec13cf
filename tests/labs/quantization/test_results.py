"""The bundled report, and the roofline computed by hand."""

import pytest
from made_runs import bundled_run

from eab.events import StepTimed
from eab.labs.quantization import held_out
from eab.labs.quantization.results import FormatMeasured, MachineMeasured, bound, ridge, run_point
from eab.lessons import bundled_runs
from eab.weight_formats import AS_LOADED, WEIGHT_FORMATS
from training.choices import FIXED_CHOICES, entropy_bits, known_distributions

MACHINE = MachineMeasured((10e9, 10e9, 30e9), (1e11, 1e11, 9e11))
ONE = FormatMeasured("int8", 2 * 10**9, 10**9, 10**9, 0, (), 1.0, 0.0, 0.0, 0.0, None)


def test_the_bundled_report_has_every_format():
    report = bundled_runs.formats()
    assert report.complete
    assert [one.weights for one in report.formats] == list(WEIGHT_FORMATS)
    assert report.formats[0].weights == AS_LOADED
    assert report.formats[0].divergence == report.formats[0].flipped == 0


def test_the_roofline_by_hand():
    assert bound(ONE, MACHINE, 1) == 0.1  # 1 GB at 10 GB/s; multiplying takes 0.02 s
    assert bound(ONE, MACHINE, 10) == pytest.approx(0.2)
    assert ridge(ONE, MACHINE) == pytest.approx(5)
    assert bound(ONE, MACHINE, 5) == pytest.approx(0.1)


def test_the_point_of_a_run_is_its_median_decode_pass():
    run = bundled_run("bridge")
    for step in run.steps:
        step.timing = StepTimed(step.step, 3 if step.step else 100, 0.5, 0.25)
    assert run_point(run) == (3, 0.25)
    for step in run.steps:
        step.timing = None
    assert run_point(run) is None


def test_the_held_out_texts_exist_and_known_entropies_fit_the_training_data():
    assert len(held_out.texts()) == 24
    known, truth = held_out.known_entropies(), known_distributions(FIXED_CHOICES)
    assert known.keys() == truth.keys()
    for prompt, bits in known.items():
        assert 0 <= bits <= entropy_bits(truth[prompt]) + 1e-6
