"""What the laboratories show of the recorded measurements and of invented ones, in one file for
people to read: shown.txt.

`EAB_WRITE=1 pytest tests/labs/test_shown.py` writes it again; then read the diff.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cells import cell, sweep
from schedules import STEADY, compared

from eab.labs.batching import BATCHING, agreement_sentence
from eab.labs.bmc import EXPERIMENTS, LABS
from eab.labs.caches import BYTES, CACHES_LAB, PROCESSED
from eab.labs.charts import chart_figure
from eab.labs.drafts import DRAFTS, GAINS
from eab.labs.measurement import Chart, Lab, LabBegan, Report, Row
from eab.labs.quantization import FORMATS, ROOFLINE, missing_sentence
from eab.labs.tuning import pictures
from eab.labs.tuning.evaluation_report import EVALUATION
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.grid import COSTS, Cell
from eab.labs.tuning.grid import GAINS as CELL_GAINS
from eab.labs.variants import variants_sentence
from eab.lessons import bundled_runs
from eab.timing import Timing
from eab.weight_formats import AS_LOADED
from scripts import claims

FILE = Path(__file__).with_name("shown.txt")
MOST = 4  # points of a line that are written, and the last one
AROUND = (0.98, 0.99, 0.99, 1.0, 1.01, 1.01, 1.02)
WIDE = (0.5, 0.6, 0.6, 1.0, 1.4, 1.4, 1.5)
ONCE = (1.0,)


def growth(seconds: Mapping[int, float], offsets: Sequence[float] = AROUND) -> Report:
    """Repeats whose overhead at each r is about this many seconds."""
    report = Report()
    report.apply(Row("costs", {"copy_row": 2e-4, "allocation": 0.0, "spare_row": 2e-4}))
    for offset in offsets:
        for r, one in seconds.items():
            row = {"rows": 64, "r": r, "padded": True, "growth": one * offset, "spare": 0.0}
            report.apply(Row("growth", row))
    return report


def rejection(ours: float, theirs: float, offsets: Sequence[float] = AROUND) -> Report:
    report = Report()
    for offset in offsets:
        for way, seconds in {"r*": ours, "concatenate and crop": theirs}.items():
            row = {"rejection": 0.5, "way": way, "drafts": 4, "tokens": 100, "growth": 0.0}
            report.apply(Row("rejection", row | {"rest": seconds * offset}))
    return report


def sizes() -> Report:
    """Three models, of which r* is bad for the first, as good as another r, and the best."""
    report = Report()
    for offset in AROUND:
        for name, best in {"a": 0.1, "b": 0.199, "c": 0.3}.items():
            for r, overhead in ((1, 0.9), (4, best), (8, 0.2)):
                row = {"model": name, "rows": 16, "predicted": 8, "r": r}
                row |= {"overhead": overhead * offset, "bytes_used": 1024}
                report.apply(Row("sizes", row | {"peak_bytes": 2048 - 128 * r}))
    return report


SLOW, FAST = (4.0,) * 7, (2.0,) * 7
BETWEEN = (1.9, 1.9, 1.9, 3.9, 6.0, 6.0, 6.0)


def one_format(weights: str, seconds: tuple[float, ...], divergence: float) -> list[Row]:
    """A format whose steps with 1 and 16 rows take so long; as loaded, they take 4 s."""
    size = {AS_LOADED: 4}.get(weights, 2) * 2**30
    quality = {"nats_per_character": 1.0 + divergence, "divergence": divergence}
    quality |= {"flipped": divergence / 10, "prompt_divergence": 0.5, "entropy_error": None}
    of_model = {"total_bytes": size, "read_bytes": size, "parameters": 2**30, "kept": 0}
    steps = [
        Row("steps", {"weights": weights, "rows": rows, "seconds": ours, "loaded_seconds": 4.0})
        for rows, each in ((1, seconds), (16, SLOW))
        for ours in each
    ]
    return [*steps, Row("formats", {"weights": weights, **of_model, **quality})]


def formats(*measured: list[Row]) -> Report:
    about = {"prompt": "A", "tokens": 300, "threshold": 0.65}
    began = LabBegan("tiny", "float32", "a machine", "formats", about)
    machine = Row("machine", {"bytes_per_second": 2**30, "operations_per_second": 2.0**33})
    missing = Row("missing", {"weights": "nf4", "reason": "this machine cannot compute it"})
    return Report().collect([began, machine, *(row for rows in measured for row in rows), missing])


FOUR = formats(
    one_format(AS_LOADED, SLOW, 0.0),
    one_format("int8", FAST, 0.1),
    one_format("int4", BETWEEN, 0.2),
    one_format("nf4", (9,) * 7, 0.3),
)
CASES: dict[str, tuple[Lab, Report]] = {
    **{f"BMC, {name}, recorded": (LABS[name], bundled_runs.bmc(name)) for name in EXPERIMENTS},
    "growth, with differences": (LABS["growth"], growth({1: 0.4, 4: 0.05, 8: 0.1, 64: 0.3})),
    "growth, some within the spread": (LABS["growth"], growth({1: 0.4, 4: 0.099, 8: 0.1})),
    "growth, measured once": (LABS["growth"], growth({1: 0.4, 4: 0.05, 8: 0.1, 64: 0.3}, ONCE)),
    "growth, an overhead below zero": (LABS["growth"], growth({1: 0.4, 4: -0.01, 8: 0.1})),
    "rejection, with a difference": (LABS["rejection"], rejection(1.0, 1.5)),
    "rejection, without a difference": (LABS["rejection"], rejection(1.0, 1.005)),
    "sizes, with and without differences": (LABS["sizes"], sizes()),
    "caches, recorded": (CACHES_LAB, bundled_runs.caches()),
    "bytes of caches, recorded": (BYTES, bundled_runs.caches()),
    "processed tokens, recorded": (PROCESSED, bundled_runs.caches()),
    "draft lengths, recorded": (DRAFTS, bundled_runs.draft_lengths()),
    "gains of drafts, recorded": (GAINS, bundled_runs.draft_lengths()),
    "prompt lookup in an edit, recorded": (DRAFTS, bundled_runs.prompt_lookup("edit")),
    "prompt lookup in a story, recorded": (DRAFTS, bundled_runs.prompt_lookup("story")),
    "batching, recorded": (BATCHING, bundled_runs.batching()),
    "batching, steady": (BATCHING, STEADY),
    "batching, noisy": (
        BATCHING,
        compared({"continuous": [1.0, 2.0] * 4, "static batches": [1.0, 1.2] * 4}),
    ),
    "batching, few repeats": (
        BATCHING,
        compared({"continuous": [1.0] * 6, "static batches": [2.0] * 6}),
    ),
    "batching, one way and another text": (BATCHING, compared({"continuous": [1.0]}, differing=1)),
    "formats, recorded": (FORMATS, bundled_runs.formats()),
    "roofline, recorded": (ROOFLINE, bundled_runs.formats()),
    "formats, faster, noisy and slower": (FORMATS, FOUR),
    "roofline, faster, noisy and slower": (ROOFLINE, FOUR),
    "formats, only noise": (
        ROOFLINE,
        formats(one_format(AS_LOADED, SLOW, 0.0), one_format("int4", BETWEEN, 0.2)),
    ),
    "evaluation, recorded": (EVALUATION, bundled_runs.evaluation()),
}
SENTENCES: dict[str, Callable[[], str]] = {
    "the caches agree, recorded": lambda: variants_sentence(bundled_runs.caches()),
    "the draft lengths agree, recorded": lambda: variants_sentence(bundled_runs.draft_lengths()),
    "the ways agree, recorded": lambda: agreement_sentence(bundled_runs.batching()),
    "the ways differ": lambda: agreement_sentence(compared({"continuous": [1.0]}, differing=1)),
    "formats that this machine lacks": lambda: missing_sentence(FOUR),
    "formats, all measured": lambda: missing_sentence(bundled_runs.formats()) or "(nothing)",
}


def written(lab: Lab, report: Report) -> str:
    """The answer, the table and the chart of a report."""
    lines = [lab.answer(report), *(" | ".join(row) for row in lab.table(report))]
    if lab.chart is not None:
        lines += described(lab.chart(report))
    return "".join(f"    {line}\n" for line in lines)


def described(chart: Chart) -> list[str]:
    axes = f"chart: {chart.x} / {chart.y}{f', log {chart.log}' if chart.log else ''}"
    mark = f", marked at {chart.mark[0]:.4g}: {chart.mark[1]}" if chart.mark else ""
    drawn = [("", chart.lines), ("points, ", chart.points)]
    return [
        axes + mark,
        *(
            f"  {kind}{name}: {points(timings, chart.scale)}"
            for kind, lines in drawn
            for name, timings in lines.items()
        ),
    ]


def points(timings: Mapping[Any, Timing], scale: float) -> str:
    every = [*timings.items()]
    some = every if len(every) <= MOST + 1 else [*every[:MOST], every[-1]]
    return "; ".join(
        f"{x if isinstance(x, str) else f'{x:.4g}'}: {scale * one.median:.4g} "
        f"({scale * one.low:.4g} to {scale * one.high:.4g})"
        for x, one in some
    )


TOKENS, ANSWERS = COSTS["tokens"], CELL_GAINS["distinct_answers"]


SWEEPS: dict[str, list[Cell]] = {
    "sweep, recorded": bundled_runs.tuning().cells,
    "sweep, clear": sweep(0.1),
    "sweep, noisy": sweep(20.0),
    "sweep, one setting": [one for one in sweep(0.1) if one.config.max_paths == 8][:6],
    "sweep, one seed": [cell(0.5, 1), cell(0.9, 1, distinct_answers=9)],
    "sweep, equal settings": [
        cell(threshold, seed, settings={"max_paths": limit}, distinct_answers=gain, tokens=tokens)
        for threshold, limit, gain, tokens in (
            *((0.5, 8, 4, 800), (0.5, 16, 4, 1600), (1.0, 8, 1, 799)),
            *((1.0, 16, 1, 1599), (1.5, 8, 1, 799), (1.5, 16, 4, 1599)),
        )
        for seed in range(8)
    ],
}


def written_sweep(cells: Sequence[Cell]) -> str:
    every = setting_points(cells, TOKENS, ANSWERS)
    some = [point for point in every if not point.is_baseline]
    lines = [pictures.answer_sentence(some, ANSWERS), str(pictures.sweep_measures(every, cells))]
    rows = pictures.setting_rows(every, TOKENS, ANSWERS)
    lines += [" | ".join(row) for row in (pictures.HEADINGS, *rows[: 2 * MOST])]
    return "".join(f"    {line}\n" for line in lines)


def test_what_is_shown_is_what_the_file_says() -> None:
    found = "".join(f"{name}\n{written(lab, one)}" for name, (lab, one) in CASES.items())
    found += "".join(f"{name}\n{written_sweep(cells)}" for name, cells in SWEEPS.items())
    found += "".join(f"{name}\n    {say()}\n" for name, say in SENTENCES.items())
    if os.environ.get("EAB_WRITE"):
        FILE.write_text(found, encoding="utf-8")
    assert found == FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name, (lab, _) in CASES.items() if lab.chart])
def test_a_chart_draws_the_medians_and_quartiles_of_its_lines(name: str) -> None:
    lab, report = CASES[name]
    assert lab.chart is not None
    chart = lab.chart(report)
    drawn = {trace.name: trace for trace in chart_figure(chart).data if trace.name}
    assert [*drawn] == [*chart.lines, *chart.points]
    assert len({trace.line.dash for trace in drawn.values() if trace.mode != "markers"}) >= min(
        len(chart.lines), 1
    )
    for line, timings in {**chart.lines, **chart.points}.items():
        kept = {x: one for x, one in timings.items() if one.median > 0 or "y" not in chart.log}
        trace, scale = drawn[line], chart.scale
        assert [*trace.x] == [*kept], "a log axis has no place for 0 and less"
        assert [*trace.y] == pytest.approx([scale * one.median for one in kept.values()])
        assert [*trace.error_y.array] == pytest.approx(
            [scale * (one.high - one.median) for one in kept.values()]
        )
        repeated = any(len(one.seconds) > 1 for one in kept.values())
        assert trace.error_y.visible == (repeated and not chart.bands)


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("recorded")])
def test_a_recording_is_whole(name: str) -> None:
    _, report = CASES[name]
    assert report.complete or all(run.ended for run in report.runs.values())


def test_nothing_is_drawn_before_anything_was_measured() -> None:
    for lab in {lab.name: lab for lab, _ in CASES.values() if lab is not EVALUATION}.values():
        assert lab.answer(Report())
        assert not [*lab.table(Report())][1:]
        measured = {} if lab.chart is None else dict(lab.chart(Report()).points)
        assert not any(measured.values())


def test_comparisons_may_be_published_unless_a_disturbed_machine_hides_a_difference() -> None:
    assert not claims.objections(claims.of_growth(CASES["growth, with differences"][1]))
    assert not claims.objections(claims.of_rejection(CASES["rejection, with a difference"][1]))
    assert not claims.objections(claims.of_sizes(sizes()))
    assert claims.objections(claims.of_rejection(rejection(1.0, 1.1, WIDE)))
