"""A model in every weight format: what is lost, and what limits the time of a step.

The columns of the tables (nats are those of a next-token distribution):

- `formats`: `weights`; `total_bytes` of all weights; `read_bytes`, read in a decode step, in which
  input embeddings count only if tied; `parameters` of the linear layers, including a tied output
  layer; `kept`, the number of linear layers that stayed as loaded; over the held-out text the loss
  in `nats_per_character`, the KL `divergence` from the model as loaded per token, and the share of
  tokens whose fork `flipped`; `prompt_divergence` after the prompt; `entropy_error`, the mean
  distance (bits) from the known entropies
- `steps`, one row per repeat: `weights`, `rows`, `seconds`, and `loaded_seconds` of the same step
  of the model as loaded, which alternates
- `machine`, one row per repeat: `bytes_per_second` of reading a matrix too large for caches,
  `operations_per_second` of multiplying two large matrices
- `missing`: `weights` that this machine cannot compute, and the `reason`

The minimum time of a decode step, in which weights are read once and multiplied with every row,
follows from the roofline model of Williams, Waterman and Patterson, 2009.
"""

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from eab.figures.timings import MILLI, in_ms
from eab.formatting import as_sentence, counted, human_bytes, listed, times
from eab.labs.measurement import Chart, Lab, Report, TextTable, Values
from eab.run import RunState
from eab.timing import NO_DIFFERENCE, NOTHING_YET, Timing, comparison, differs
from eab.weight_formats import AS_LOADED

_HEADINGS: Final = (
    "Weights",
    "All weights",
    "Step of 1 row",
    "Against as-loaded",
    "Nats per character",
    "KL, text",
    "KL, prompt",
    "Forks that flip",
    "Entropy error",
)
_NOTE: Final = (
    "All measured. Steps: medians of alternating repeats, with quartiles in brackets. KL: "
    "divergence of the next-token distribution from the model as loaded, in nats, over a "
    "held-out text and after the prompt. Forks that flip: tokens of that text at which only one "
    "of the two models would fork. Entropy error: mean distance from the known entropies, in "
    "bits. Embeddings stay as loaded. The held-out text is 24 of Aesop's Fables, older in style "
    "than the embedded model's training data."
)
_UNITS: Final = {
    "total_bytes": "bytes",
    "read_bytes": "bytes",
    "nats_per_character": "nats",
    "divergence": "nats",
    "prompt_divergence": "nats",
    "entropy_error": "bits",
    "seconds": "s",
    "loaded_seconds": "s",
    "bytes_per_second": "bytes/s",
    "operations_per_second": "1/s",
}
_BOUNDED: Final = (AS_LOADED, "bfloat16", "int8", "int4")  # drawn in the chart of the roofline
_ROWS: Final = tuple(2**power for power in range(9))
_MIB: Final = 2**20


class StepTimings(NamedTuple):
    """A decode step with so many rows in a format, and with the weights as loaded."""

    rows: int
    ours: Timing
    loaded: Timing


class RunPoint(NamedTuple):
    """A run on the roofline: median tokens per forward pass, and median seconds per pass."""

    rows: float
    seconds: float


def step_timings(report: Report, weights: str) -> list[StepTimings]:
    """The steps of a format; the weights as loaded have the repeats from all comparisons."""
    steps = []
    for rows in dict.fromkeys(row["rows"] for row in report.rows("steps", weights=weights)):
        ours = report.timing("steps", "seconds", weights=weights, rows=rows)
        loaded = report.timing("steps", "loaded_seconds", weights=weights, rows=rows)
        if weights == AS_LOADED:
            beside = [
                row["loaded_seconds"]
                for row in report.rows("steps", rows=rows)
                if row["weights"] != AS_LOADED
            ]
            ours = loaded = Timing((*ours.seconds, *beside))
        steps.append(StepTimings(rows, ours, loaded))
    return steps


def rounded_formats(report: Report) -> list[Values]:
    """The formats so far, except the weights as loaded."""
    return [row for row in report.rows("formats") if row["weights"] != AS_LOADED]


def formats_answer(report: Report) -> str:
    """How often the smallest format changes a fork, and what changes the distribution most."""
    others = rounded_formats(report)
    if not others:
        return NOTHING_YET
    small = min(others, key=lambda row: int(row["total_bytes"]))
    near, far = (pick(others, key=lambda row: float(row["divergence"])) for pick in (min, max))
    return (
        f"With {small['weights']}, for {small['flipped']:.2%} of the tokens of a held-out text, "
        "the entropy moves to the other side of the fork threshold "
        f"({report.about['threshold']:g} nats). Over {counted(report.about['tokens'], 'token')}, "
        f"{near['weights']} moves the next-token distribution least ({near['divergence']:.4f} nats "
        f"per token) and {far['weights']} most ({far['divergence']:.4f})."
    )


def formats_chart(report: Report) -> Chart:
    """The divergence from the model as loaded over the total weight bytes."""
    points = {
        row["weights"]: {row["total_bytes"] / _MIB: Timing((row["divergence"],))}
        for row in rounded_formats(report)
    }
    loaded = report.rows("formats", weights=AS_LOADED)
    mark = (loaded[0]["total_bytes"] / _MIB, "as loaded: 0") if loaded else None
    x, y = "MiB of all weights", "KL, nats per token"
    return Chart(x, y, {}, points, log="y", mark=mark)


def formats_table(report: Report) -> TextTable:
    """One row of text per format."""
    formats = report.rows("formats")
    return (
        [_HEADINGS, *(_format_cells(row, step_timings(report, row["weights"])) for row in formats)]
        if formats
        else []
    )


def _format_cells(row: Values, steps: Sequence[StepTimings]) -> Sequence[str]:
    first, is_loaded, error = steps[0], row["weights"] == AS_LOADED, row["entropy_error"]
    return (
        row["weights"],
        human_bytes(row["total_bytes"]),
        in_ms(first.ours),
        "–" if is_loaded else comparison(first.ours, first.loaded),
        f"{row['nats_per_character']:.4f}",
        f"{row['divergence']:.4f}",
        f"{row['prompt_divergence']:.4f}",
        f"{row['flipped']:.2%}",
        "–" if error is None else f"{error:.3f}",
    )


def missing_sentence(report: Report) -> str:
    """The formats that this machine cannot compute; empty if it can compute all."""
    missing = report.rows("missing")
    if not missing:
        return ""
    names = listed([row["weights"] for row in missing])
    return f"Not measured: {names}. {as_sentence(missing[0]['reason'])}"


def steps_sentence(report: Report) -> str:
    """Each format's largest speedup over the weights as loaded, and its number of rows."""
    words = []
    for row in rounded_formats(report):
        faster = [
            (step.loaded.median / step.ours.median, step.rows)
            for step in step_timings(report, row["weights"])
            if differs(step.ours, step.loaded) and step.ours.median < step.loaded.median
        ]
        if faster:
            gain, rows = max(faster)
            words.append(f"{row['weights']} {times(gain)} with {counted(rows, 'row')}")
    if not words:
        return f"Speed compared with the weights as loaded: {NO_DIFFERENCE}, or slower."
    return f"Faster than the weights as loaded, at most: {listed(words)}."


def bound(report: Report, measured: Values, rows: float) -> float:
    """The minimum seconds of a step: the longer of reading the weights and multiplying."""
    return max(_reading(report, measured), rows * _multiplying(report, measured))


def ridge(report: Report, measured: Values) -> float:
    """The number of rows at which multiplying takes as long as reading the weights."""
    return _reading(report, measured) / _multiplying(report, measured)


def _reading(report: Report, measured: Values) -> float:
    speed = median(row["bytes_per_second"] for row in report.rows("machine"))
    return float(measured["read_bytes"] / speed)


def _multiplying(report: Report, measured: Values) -> float:
    """Seconds per row."""
    speed = median(row["operations_per_second"] for row in report.rows("machine"))
    return float(2 * measured["parameters"] / speed)


def run_point(run: RunState) -> RunPoint | None:
    """The median decode pass of a run; None if no pass after the prompt was timed."""
    timings = [step.timing for step in run.steps[1:] if step.timing is not None]
    timings = [timing for timing in timings if timing.forward_seconds > 0]
    if not timings:
        return None
    return RunPoint(
        median(timing.tokens for timing in timings),
        median(timing.forward_seconds for timing in timings),
    )


def roofline_answer(report: Report) -> str:
    """Up to how many rows reading weights is the limit, how close a step is, and the speedups."""
    if not report.rows("machine") or not report.rows("formats"):
        return NOTHING_YET
    full = report.rows("formats")[0]
    step = step_timings(report, full["weights"])[0]
    over = step.ours.median / bound(report, full, step.rows)
    return (
        f"Up to {ridge(report, full):.0f} rows, a step is limited by reading the weights as "
        f"loaded ({human_bytes(full['read_bytes'])}), and additional rows cost little. Measured, a "
        f"step of {counted(step.rows, 'row')} takes {in_ms(step.ours)}, {times(over)} the bound. "
        f"{steps_sentence(report)}"
    )


def roofline_chart(report: Report, run: RunPoint | None = None) -> Chart:
    """The minimum time of a step over rows for some formats, with measured times."""
    lines, points = {}, dict[str, dict[float, Timing]]()
    for row in report.rows("formats") if report.rows("machine") else []:
        if row["weights"] in _BOUNDED:
            counts = sorted({*_ROWS, max(1.0, ridge(report, row))})
            lines[f"{row['weights']}: bound"] = {
                count: Timing((bound(report, row, count),)) for count in counts
            }
            points[f"{row['weights']}: measured"] = {
                step.rows: step.ours for step in step_timings(report, row["weights"])
            }
    if run is not None:
        points["your run"] = {run.rows: Timing((run.seconds,))}
    return Chart("rows (tokens) per step", "ms per step", lines, points, MILLI, "xy", _ROWS)


FORMATS: Final = Lab("formats", _UNITS, formats_answer, formats_table, _NOTE, formats_chart)
ROOFLINE: Final = Lab("roofline", _UNITS, roofline_answer, chart=roofline_chart)
