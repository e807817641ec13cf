"""The BMC experiments: what each asks, and the answer and the chart that its rows give.

Seconds and bytes are measured unless called predictions. The columns of the tables, which have one
row per repeat:

- `growth`: the `rows` written, `r`, `padded` (whether attention visited the spare rows), seconds of
  all `growth`, of the `rest`, and of what spare rows added (`spare`); exact counts of `growths` and
  `rows_copied`; `bytes_used` by the rows, and `peak_bytes` while a growth copies
- `rejection`: `rejection` (probability), `way`, `drafts`, `passes`, `tokens` kept, seconds of
  `growth` and of the `rest`
- `sizes`: `model`, `rows`, `predicted` r*, `r`, `bytes_used`, `peak_bytes`, seconds of `overhead`
- `costs`: the fitted constants of `CostModel`, in seconds
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, get_args

import pandas as pd

from eab.engine.caches.growth import CacheWorkload, CostModel, best_r
from eab.figures.kv_memory import Demand, StepAllocation
from eab.formatting import counted, human_bytes, listed
from eab.labs.measurement import Chart, Lab, Report, TextTable, Values, chart_table
from eab.timing import (
    MILLI,
    NOTHING_YET,
    Timing,
    are_too_few,
    comparison,
    differs,
    fastest,
    in_ms,
    ms,
    ratio_words,
    repeats_words,
    timings_by,
    with_spread,
)

Experiment = Literal["growth", "sizes", "rejection"]
EXPERIMENTS: Final[tuple[Experiment, ...]] = get_args(Experiment)
R_AXIS: Final = "r, steps per growth"
CONCAT: Final = "concatenate and crop"
_UNITS: Final = dict.fromkeys(("growth", "rest", "spare", "overhead"), "s") | dict.fromkeys(
    ("bytes_used", "peak_bytes"), "bytes"
)


def fitted(report: Report) -> CostModel | None:
    """The cost model that was fitted last, if any."""
    return next((CostModel(**row) for row in reversed(report.rows("costs"))), None)


def is_presentable(report: Report) -> bool:
    """Whether the experiment ran to its end, or was stopped after a whole repeat with times."""
    return report.complete or report.tables not in ([], ["costs"])


def overheads(report: Report) -> dict[int, Timing]:
    """Seconds of growths and spare rows by r, for padded attention only; BMC balances the two."""
    rows = report.rows("growth", padded=True)
    return timings_by((row["r"], row["growth"] + row["spare"]) for row in rows)


def predicted_r(report: Report) -> int | None:
    """The measured r nearest to the r* predicted by the calibration before the runs."""
    costs, measured = fitted(report), overheads(report)
    if costs is None or not measured:
        return None
    best = best_r(costs, CacheWorkload(_rows_written(report)))
    return min(measured, key=lambda r: abs(r - best))


def _rows_written(report: Report) -> int:
    return int(report.rows("growth")[0]["rows"])


def growth_answer(report: Report) -> str:
    """How good the predicted r* is, and what the smallest and the largest r cost."""
    measured, best = overheads(report), predicted_r(report)
    if best is None or measured[best].median <= 0:
        return NOTHING_YET
    compared = [_beside(r, measured[r], measured[best]) for r in compared_r(measured, best)]
    return (
        f"Writing {counted(_rows_written(report), 'row')} with padded attention: at the predicted "
        f"r* = {best}, growths and spare rows take {in_ms(measured[best])}; {'; '.join(compared)} "
        f"({repeats_words(measured.values())})."
    )


def compared_r(measured: Mapping[int, Timing], best: int) -> list[int]:
    """The r to compare with r*: the best one measured, the smallest and the largest."""
    chosen = dict.fromkeys((fastest(measured), min(measured), max(measured)))
    return [r for r in chosen if r != best]


def _beside(r: int, timing: Timing, ours: Timing) -> str:
    if timing.median <= 0:
        return f"at r = {r} the difference is within the noise"
    words = f"at r = {r}, {in_ms(timing)}"
    if are_too_few(timing, ours):
        return words
    of_ours = " that at r*" if differs(timing, ours) else ""
    return f"{words}: {ratio_words(timing, ours)}{of_ours}"


def growth_chart(report: Report) -> Chart:
    """Growths and spare rows over r, and the predicted r*."""
    measured, best = overheads(report), predicted_r(report)
    mark = None if best is None else (best, f"predicted r* = {best}")
    ticks = [r for r in measured if r & (r - 1) == 0]
    y = "ms of growths and spare rows"
    return Chart(R_AXIS, y, {"measured": measured}, {}, MILLI, "xy", ticks, mark)


def token_rates(report: Report) -> dict[str, dict[float, Timing]]:
    """Kept tokens per second of growing, passes and trimming, by way and by rejection rate."""
    rows = report.rows("rejection")
    return {
        way: timings_by(
            (row["rejection"], row["tokens"] / (row["growth"] + row["rest"]))
            for row in rows
            if row["way"] == way
        )
        for way in dict.fromkeys(row["way"] for row in rows)
    }


def rejection_pairs(report: Report) -> dict[float, tuple[Timing, Timing]]:
    """For each rejection rate, the rates of r* and of concatenation."""
    rates = token_rates(report)
    ours, theirs = rates.get("r*", {}), rates.get(CONCAT, {})
    return {
        rejection: (ours[rejection], theirs[rejection]) for rejection in ours if rejection in theirs
    }


def rejection_answer(report: Report) -> str:
    """The speed of r* compared with concatenation, at each rejection rate."""
    pairs = rejection_pairs(report)
    if not pairs:
        return NOTHING_YET
    drafts = max(row["drafts"] for row in report.rows("rejection"))
    compared = [
        f"{ratio_words(ours, theirs)} at {rejection:.0%} rejected"
        for rejection, (ours, theirs) in pairs.items()
    ]
    rates = [rate for pair in pairs.values() for rate in pair]
    return (
        f"Speed of r* with {counted(drafts, 'draft token')} per pass in the spare rows, compared "
        f"with concatenating and cropping: {listed(compared)} ({repeats_words(rates)}; rejections "
        "simulated; drafting time not counted)."
    )


def rejection_chart(report: Report) -> Chart:
    """Kept tokens per second over the rejection rate, one line per way."""
    lines = {
        way: {100 * rejection: rate for rejection, rate in rates.items()}
        for way, rates in token_rates(report).items()
    }
    x = "probability that a draft token is rejected (%, simulated)"
    return Chart(x, "kept tokens per second (measured)", lines)


def size_overheads(report: Report) -> dict[str, tuple[int, dict[int, Timing]]]:
    """For each model, the predicted r*, and seconds of growths and spare rows by r."""
    rows = report.rows("sizes")
    predicted = {row["model"]: row["predicted"] for row in rows}
    return {
        model: (best, report.timings("sizes", "r", "overhead", model=model))
        for model, best in predicted.items()
    }


def are_comparable(measured: Mapping[int, Timing]) -> bool:
    """Whether every overhead is above 0; differences of noisy times can be negative."""
    return all(timing.median > 0 for timing in measured.values())


def sizes_answer(report: Report) -> str:
    """For each model, how far the predicted r* is from the best r tried."""
    results = size_overheads(report)
    if not results:
        return NOTHING_YET
    words, noisy = [], []
    for model, (predicted, measured) in results.items():
        best = fastest(measured)
        if not are_comparable(measured):
            noisy.append(model)
        elif predicted == best:
            words.append(f"{model}: r* is the best")
        else:
            words.append(f"{model}: {ratio_words(measured[predicted], measured[best])}")
    left_out = f"Not shown, because it is within the noise: the overhead of {listed(noisy)}."
    if not words:
        return left_out
    timings = [timing for _, measured in results.values() for timing in measured.values()]
    return (
        "Overhead at the predicted r* compared with the best r that was tried: "
        f"{'; '.join(words)} ({repeats_words(timings)}, KV part alone)."
        f"{f' {left_out}' if noisy else ''}"
    )


def sizes_chart(report: Report) -> Chart:
    """Overhead over r, as multiples of the least and of r*, without models lost in noise."""
    lines = {}
    for model, (predicted, measured) in size_overheads(report).items():
        if are_comparable(measured):
            least = measured[fastest(measured)].median
            lines[f"{model} (r* = {predicted})"] = {
                r / predicted: Timing(tuple(seconds / least for seconds in timing.seconds))
                for r, timing in measured.items()
            }
    ticks = [0.03, 0.1, 0.3, 1, 3, 10]
    x, y = "r as a multiple of the predicted r*", "overhead as a multiple of the least"
    return Chart(x, y, lines, {}, 1.0, "xy", ticks, (1, "r*"))


def _peak(row: Values) -> float:
    return float(row["peak_bytes"] / row["bytes_used"])


def sizes_table(report: Report) -> TextTable:
    """One row per model and r: time, and memory."""
    rows: list[Sequence[str]] = []
    for model, (predicted, measured) in size_overheads(report).items():
        for r, timing in measured.items():
            of_r = report.rows("sizes", model=model, r=r)[0]
            compared = "r*" if r == predicted else comparison(timing, measured[predicted])
            peak = f"{human_bytes(of_r['peak_bytes'])} ({_peak(of_r):.2f}×)"
            rows.append((f"{model}, r = {r}", with_spread(timing, ms), compared, peak))
    return [_SIZES_HEADINGS, *rows] if rows else []


def _lab(
    name: Experiment,
    answer: Callable[[Report], str],
    chart: Callable[[Report], Chart],
    x: str,
    written: Callable[[float], str],
    note: str,
) -> Lab:
    """An experiment whose table shows the points of its chart."""

    def table(report: Report) -> TextTable:
        return chart_table(chart(report), x, written)

    return Lab(name, _UNITS, answer, table, note, chart)


_OVERHEAD, _RATE = "Milliseconds of growths and spare rows.", "Kept tokens per second."
_SIZES: Final = (
    "Times are medians with quartiles. The peak includes spare rows, and the old tensors of the "
    "layer that a growth is copying."
)
_SIZES_HEADINGS: Final = (
    "",
    "Growths and spare rows (ms)",
    "Against r*",
    "Peak memory (of the bytes in use)",
)
LABS: Final[Mapping[Experiment, Lab]] = {
    "growth": _lab("growth", growth_answer, growth_chart, "r", ms, _OVERHEAD),
    "sizes": Lab("sizes", _UNITS, sizes_answer, sizes_table, _SIZES, sizes_chart),
    "rejection": _lab(
        "rejection", rejection_answer, rejection_chart, "% rejected", "{:,.0f}".format, _RATE
    ),
}


def fit_measures(costs: CostModel) -> dict[str, str]:
    """The fitted constants, by title."""
    return {
        "Copying a row": _micro(costs.copy_row),
        "Each growth": _micro(costs.allocation),
        "A spare row, per pass": _micro(costs.spare_row),
        "... per further token": _micro(costs.spare_query),
    }


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"


def allocations_table(demand: Demand, rs: Sequence[int]) -> pd.DataFrame:
    """One row per r for a recorded run: growths, rows, bytes."""
    rows = []
    for r in rs:
        steps = demand.at(r)
        row = {
            "r": r,
            "growths": sum(step.grew for step in steps[1:]),
            "rows_copied": sum(step.copied for step in steps),
            "bytes_copied": sum(step.copied for step in steps) * demand.row_bytes,
            "spare_rows_mean": sum(step.spare for step in steps) / len(steps),
            "most_bytes_held": max(step.held for step in steps) * demand.row_bytes,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def steps_measures(steps: Sequence[StepAllocation]) -> dict[str, str]:
    """The growths after the prompt, the rows that they copy, and the spare rows."""
    growths = [step for step in steps[1:] if step.grew]
    spare = sum(step.spare for step in steps) / max(1, len(steps))
    return {
        "Growths": f"{len(growths):,}",
        "Rows that they copy": f"{copied_rows(growths):,}",
        "Spare rows, mean": f"{spare:,.1f}",
    }


def run_curve(demand: Demand, rs: Sequence[int], r: int | None) -> Chart:
    """The rows that growths copy and the spare rows of all steps, by r."""
    counts = {"rows copied": copied_rows, "spare rows, if attention reads them": spare_rows}
    lines = {
        name: {x: Timing((count(demand.at(x)),)) for x in rs} for name, count in counts.items()
    }
    mark = None if r is None else (r, f"r = {r}")
    return Chart(R_AXIS, "rows in all steps, without 0", lines, log="xy", ticks=rs, mark=mark)


def copied_rows(steps: Sequence[StepAllocation]) -> int:
    """How many rows all growths copy."""
    return sum(step.copied for step in steps)


def spare_rows(steps: Sequence[StepAllocation]) -> int:
    """The spare rows of all steps after the prompt."""
    return sum(step.spare for step in steps[1:])


def run_curve_sentence(best: int | None) -> str:
    """The r that the cost model prefers for the run, if there is one."""
    padded = "" if best is None else f"With padded attention, the cost model prefers r = {best}. "
    return f"{padded}With sliced attention, only copies cost time."
