"""The sentences and figures of the BMC experiments, from invented repeats."""

from collections.abc import Mapping, Sequence

import pytest

from eab.analysis.kv_allocation import Demand, StepRows, best_r_of
from eab.caches.growth import CostModel
from eab.labs import bmc as results
from eab.labs.bmc import LABS, predicted_r
from eab.labs.charts import chart_figure
from eab.labs.measurement import Report, Row
from eab.timing import NO_DIFFERENCE, TOO_FEW
from scripts import claims

FITTED = {"copy_row": 2e-4, "allocation": 0.0, "spare_row": 2e-4}
AROUND = (0.98, 0.99, 0.99, 1.0, 1.01, 1.01, 1.02)
WIDE = (0.5, 0.6, 0.6, 1.0, 1.4, 1.4, 1.5)


def growth_report(
    seconds: Mapping[int, float], offsets: Sequence[float] | Mapping[int, Sequence[float]] = AROUND
) -> Report:
    """A report with repeats whose overhead at each r is about this many seconds."""
    report = Report()
    report.apply(Row("costs", FITTED))
    spreads = offsets if isinstance(offsets, Mapping) else dict.fromkeys(seconds, offsets)
    for number in range(len(next(iter(spreads.values())))):
        for r, one in seconds.items():
            row = {"rows": 64, "r": r, "padded": True, "growth": one * spreads[r][number]}
            report.apply(Row("growth", row | {"spare": 0.0}))
    return report


def test_measurable_differences_from_r_star_are_given_with_their_spread():
    report = growth_report({1: 0.4, 4: 0.05, 8: 0.1, 64: 0.3})
    assert predicted_r(report) == 8
    words = results.growth_answer(report)
    for part in (
        "r* = 8, growths and spare rows take 100 ms (99.0–101)",
        "r = 4, 50.0 ms (49.5–50.5): 0.5×",
        "r = 1, 400 ms (396–404): 4×",
        "r = 64, 300 ms (297–303): 3×",
        "medians of 7 repeats, measured",
    ):
        assert part in words
    assert claims.objections(claims.of_growth(report)) == []


def test_seconds_of_the_cost_model_are_not_shown():
    report = growth_report({1: 0.4, 4: -0.01, 8: 0.1})
    [measured] = chart_figure(results.growth_chart(report)).data
    assert list(measured.x) == [1, 8], "overheads hidden by noise are left out"
    assert LABS["growth"].table(report)[1:] == [
        ("1", "400 (396–404)"),
        ("4", "-10.0 (-10.1–-9.90)"),
        ("8", "100 (99.0–101)"),
    ]


def test_the_curve_of_a_run_counts_rows_and_names_the_preferred_r():
    needs = tuple(StepRows(step, 10 + step, 1) for step in range(9))
    demand = Demand(needs, steps_allowed=9, paths_allowed=1, row_bytes=8)
    copied, spare = chart_figure(results.run_curve(demand, (1, 4), None)).data
    # r = 1 copies 10, 11, ... 17 rows; r = 4 copies 10 and 14, and has 3, 2, 1, 0 spare rows twice.
    assert list(copied.y) == [sum(range(10, 18)), 24]
    assert list(zip(spare.x, spare.y, strict=True)) == [(4, 12)]
    free = CostModel(copy_row=1.0, allocation=0.0, spare_row=1e-9)
    dear = CostModel(copy_row=1e-9, allocation=0.0, spare_row=1.0)
    assert [best_r_of(demand, (1, 4), costs) for costs in (free, dear)] == [4, 1]
    assert "prefers r = 4. With" in results.run_curve_sentence(4)
    assert results.run_curve_sentence(None).startswith("With sliced")
    assert [*results.steps_measures(demand.at(4)).values()] == ["2", "24", "1.3"]


def test_differences_within_the_spread_and_single_repeats_give_no_comparison():
    report = growth_report({1: 0.4, 4: 0.099, 8: 0.1, 64: 0.3})
    assert f"at r = 4, 99.0 ms (98.0–100.0): {NO_DIFFERENCE};" in results.growth_answer(report)
    report = growth_report({1: 0.4, 4: 0.05, 8: 0.1, 64: 0.3}, offsets=(1.0,))
    words = results.growth_answer(report)
    assert "take 100 ms; at r = 4, 50.0 ms; at r = 1, 400 ms; at r = 64, 300 ms (" in words
    assert words.endswith(f"(measured once, {TOO_FEW}).")


def test_the_line_over_r_has_error_bars():
    figure = chart_figure(results.growth_chart(growth_report({1: 0.4, 8: 0.1})))
    measured = next(trace for trace in figure.data if trace.name == "measured")
    assert list(measured.y) == pytest.approx([400.0, 100.0])
    assert list(measured.error_y.array) == pytest.approx([4.0, 1.0])
    once = chart_figure(results.growth_chart(growth_report({1: 0.4, 8: 0.1}, offsets=(1.0,))))
    assert not once.data[-1].error_y.visible


def rejection_report(ours: float, theirs: float, offsets: Sequence[float]) -> Report:
    report = Report()
    for factor in offsets:
        for way, seconds in {"r*": ours, "concatenate and crop": theirs}.items():
            row = {"rejection": 0.5, "way": way, "drafts": 4, "tokens": 100, "growth": 0.0}
            report.apply(Row("rejection", row | {"rest": seconds * factor}))
    return report


def test_rejected_drafts_are_compared_only_if_a_difference_was_measured():
    report = rejection_report(1.0, 1.5, AROUND)
    assert "1.5× at 50% rejected" in results.rejection_answer(report)
    assert claims.objections(claims.of_rejection(report)) == []
    same = rejection_report(1.0, 1.005, AROUND)
    assert f"{NO_DIFFERENCE} at 50% rejected" in results.rejection_answer(same)
    assert claims.objections(claims.of_rejection(rejection_report(1.0, 1.1, WIDE)))


def test_other_shapes_are_compared_only_if_a_difference_was_measured():
    report = Report()
    for factor in AROUND:
        for name, best in {"a": 0.1, "b": 0.199, "c": 0.3}.items():
            pairs = ((1, 0.9 * factor), (4, best * factor), (8, 0.2 * factor))
            for r, overhead in pairs:
                row = {"model": name, "rows": 16, "predicted": 8, "r": r, "overhead": overhead}
                report.apply(Row("sizes", row | {"bytes_used": 1024, "peak_bytes": 2048 - 128 * r}))
    words = results.sizes_answer(report)
    assert f"a: 2×; b: {NO_DIFFERENCE}; c: r* is the best (medians of 7" in words
    assert LABS["sizes"].table(report)[2:4] == [
        ("a, r = 4", "100 (99.0–101)", "2.00 times as fast", "1.5 KiB (1.50×)"),
        ("a, r = 8", "200 (198–202)", "r*", "1.0 KiB (1.00×)"),
    ]
    assert claims.objections(claims.of_sizes(report)) == []
    assert len(chart_figure(results.sizes_chart(report)).data) == 3
