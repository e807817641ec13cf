"""The BMC experiments: what each asks, and the answer and the chart that its rows give.

Seconds and bytes are measured unless called predictions. The columns of the tables, which have one
row per repeat:

- `growth`: the `rows` written, `r`, `padded` (whether attention visited the spare rows), seconds of
  all `growth`, of the `rest`, and of what spare rows added (`spare`); exact counts of `growths` and
  `rows_copied`
- `lengths`: `rows` in use, seconds of `growth`, `attention` and the whole `step` at r = 1
- `rejection`: `rejection` (probability), `way`, `drafts`, `passes`, `tokens` kept, seconds of
  `growth` and of the `rest`
- `sizes`: `model`, `predicted` r*, `r`, seconds of `overhead`
- `memory`: `r`, `rows`, `bytes_used`, `bytes_held`, `peak_bytes`
- `costs`: the fitted constants of `CostModel`, in seconds
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, get_args

import pandas as pd

from eab.analysis.kv_allocation import Demand
from eab.caches.growth import CacheWorkload, CostModel, best_r
from eab.figures.timings import MILLI, in_ms, ms, ratio_words, repeats_words
from eab.formatting import counted, human_bytes, listed
from eab.labs.measurement import Chart, Lab, Report, TextTable, chart_table
from eab.timing import NOTHING_YET, Timing, are_too_few, differs, fastest, timings_by

Experiment = Literal["growth", "lengths", "rejection", "sizes", "memory"]
EXPERIMENTS: Final[tuple[Experiment, ...]] = get_args(Experiment)
R_AXIS: Final = "r, steps per growth"
CONCAT: Final = "concatenate and crop"
_ROWS: Final = "rows in use"
_UNITS: Final = dict.fromkeys(("growth", "rest", "spare", "attention", "step", "overhead"), "s")


def fitted(report: Report) -> CostModel | None:
    """The cost model that was fitted last, if any."""
    return next((CostModel(**row) for row in reversed(report.rows("costs"))), None)


def is_presentable(report: Report) -> bool:
    """Whether the experiment ran to its end, or was stopped after a whole repeat with times."""
    return report.complete or not {"costs", "memory"}.issuperset(report.tables)


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


def length_timings(report: Report) -> dict[str, dict[int, Timing]]:
    """Seconds per step by length, of each part of a step at r = 1."""
    parts = {
        "allocate and copy": "growth",
        "attention, all layers": "attention",
        "whole step with the model": "step",
    }
    return {name: report.timings("lengths", "rows", column) for name, column in parts.items()}


def lengths_answer(report: Report) -> str:
    """How the times for copying and for attention grow with the length."""
    growth, attention, step = length_timings(report).values()
    if not growth:
        return NOTHING_YET
    first, last, whole = min(growth), max(growth), max(step, default=0)
    context = (
        f" The whole step is measured only up to {counted(whole, 'row')}, because the next "
        "length exceeds the context of this model."
        if 0 < whole < last
        else ""
    )
    return (
        f"At r = 1 a step with {first:,} rows in use takes {in_ms(growth[first])} to allocate and "
        f"copy and {in_ms(attention[first])} for attention; with {last:,} rows it takes "
        f"{in_ms(growth[last])} and {in_ms(attention[last])} "
        f"({repeats_words(growth.values())}).{context}"
    )


def lengths_chart(report: Report) -> Chart:
    """The time of one step at r = 1, by length."""
    parts = length_timings(report)
    ticks = [*parts["allocate and copy"]]
    return Chart(_ROWS, "ms per step at r = 1, measured", parts, {}, MILLI, "xy", ticks)


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


def memory_answer(report: Report) -> str:
    """The bytes held with the smallest and the largest r at the shortest length."""
    held = report.rows("memory")
    if not held:
        return NOTHING_YET
    shortest = min(row["rows"] for row in held)
    rows = sorted(report.rows("memory", rows=shortest), key=lambda row: int(row["r"]))
    low, high = rows[0], rows[-1]
    return (
        f"With {counted(shortest, 'row')} in use ({human_bytes(low['bytes_used'])}), r = "
        f"{low['r']} holds {human_bytes(low['bytes_held'])}, with a peak of "
        f"{human_bytes(low['peak_bytes'])} while a growth copies; r = {high['r']} holds "
        f"{human_bytes(high['bytes_held'])}, including spare rows (measured from the tensors)."
    )


def memory_chart(report: Report) -> Chart:
    """Peak bytes as a multiple of the bytes in use, over the length, one line per r."""
    held = report.rows("memory")
    lines = {
        f"r = {r}": {
            row["rows"]: Timing((row["peak_bytes"] / row["bytes_used"],))
            for row in held
            if row["r"] == r
        }
        for r in dict.fromkeys(row["r"] for row in held)
    }
    ticks = sorted({row["rows"] for row in held})
    return Chart(_ROWS, "peak as a multiple of the bytes in use", lines, {}, 1.0, "xy", ticks)


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


_RATIO: Final = "{:.2f}".format
_RATE: Final = "{:,.0f}".format
_OVERHEAD, _STEP = "Milliseconds of growths and spare rows.", "Milliseconds per step."
LABS: Final[Mapping[Experiment, Lab]] = {
    "growth": _lab("growth", growth_answer, growth_chart, "r", ms, _OVERHEAD),
    "lengths": _lab("lengths", lengths_answer, lengths_chart, "rows", ms, _STEP),
    "rejection": _lab(
        "rejection",
        rejection_answer,
        rejection_chart,
        "% rejected",
        _RATE,
        "Kept tokens per second.",
    ),
    "sizes": _lab(
        "sizes", sizes_answer, sizes_chart, "r / r*", _RATIO, "Multiples of the least overhead."
    ),
    "memory": _lab(
        "memory", memory_answer, memory_chart, "rows", _RATIO, "Multiples of the bytes in use."
    ),
}


def fit_sentence(costs: CostModel) -> str:
    """The fitted constants in a sentence."""
    return (
        f"Copying a row takes {_micro(costs.copy_row)}, and each growth another "
        f"{_micro(costs.allocation)}. A spare row adds {_micro(costs.spare_row)} to a pass of one "
        f"token, and {_micro(costs.spare_query)} for each further token (fitted)."
    )


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
