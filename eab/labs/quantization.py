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

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple, TypeAlias

from eab.formatting import as_sentence, counted, human_bytes, listed, times
from eab.labs.measurement import Chart, Lab, Report, TextTable, Values
from eab.run import RunState
from eab.timing import MILLI, NOTHING_YET, Timing, comparison, in_ms
from eab.token_text import visible
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
    """Up to how many rows reading weights is the limit, and how close a step comes to the bound."""
    if not report.rows("machine") or not report.rows("formats"):
        return NOTHING_YET
    full = report.rows("formats")[0]
    step = step_timings(report, full["weights"])[0]
    over = step.ours.median / bound(report, full, step.rows)
    return (
        f"Up to {ridge(report, full):.0f} rows, a step is limited by reading the weights as "
        f"loaded ({human_bytes(full['read_bytes'])}), and additional rows cost little. Measured, a "
        f"step of {counted(step.rows, 'row')} takes {in_ms(step.ours)}, {times(over)} the bound."
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


Prefix: TypeAlias = tuple[int, ...]  # token ids after the prompt


@dataclass(frozen=True, slots=True)
class ForkChange:
    """A place where only one of the runs forks."""

    text: str  # text of the tokens before the fork
    a: float | None  # entropy (nats) of the next token in each run; None if the run lacks the text
    b: float | None


@dataclass(frozen=True, slots=True)
class Moved:
    """The differences between two runs."""

    first: int | None  # number of the first token (from 1) that only one run has, if any
    appeared: tuple[ForkChange, ...]  # forks that only the second run has, in order
    vanished: tuple[ForkChange, ...]  # forks that only the first run has, in order
    weight: float  # total variation distance between the weights of their texts, 0 to 1


def same_request(a: RunState, b: RunState) -> bool:
    """Whether both runs had the same request and model, in different weight formats."""
    one, other = a.started, b.started
    return (
        (one.model.name, one.prompt_tokens, one.config)
        == (other.model.name, other.prompt_tokens, other.config)
    ) and one.model.weights != other.model.weights


def moved(a: RunState, b: RunState) -> Moved:
    """Compare two runs of the same prompt tokens."""
    entropies = _entropies(a), _entropies(b)
    forks = _forks(a), _forks(b)
    only_one = _prefixes(a) ^ _prefixes(b)
    appeared, vanished = (
        tuple(
            ForkChange(text, *(own.get(prefix) for own in entropies))
            for prefix, text in sorted(here.items(), key=lambda fork: (len(fork[0]), fork))
            if prefix not in there
        )
        for here, there in (forks[::-1], forks)
    )
    return Moved(min(map(len, only_one), default=None), appeared, vanished, _variation(a, b))


def _texts(run: RunState) -> Iterator[tuple[Prefix, float]]:
    for leaf in run.leaves():
        yield tuple(token.id for token in run.tokens(leaf.id)), leaf.weight


def _prefixes(run: RunState) -> set[Prefix]:
    return {text[:end] for text, _ in _texts(run) for end in range(1, len(text) + 1)}


def _entropies(run: RunState) -> Mapping[Prefix, float]:
    """The entropy of the token after each prefix that some text of the run has."""
    entropies: dict[Prefix, float] = {}
    for path in run.paths:
        before: Prefix = ()
        for token in run.tokens(path.id):
            entropies.setdefault(before, token.entropy or 0.0)
            before = (*before, token.id)
    return entropies


def _forks(run: RunState) -> Mapping[Prefix, str]:
    forks = {}
    for path in run.forks():
        tokens = list(run.tokens(path.id))
        forks[tuple(token.id for token in tokens)] = "".join(token.text for token in tokens)
    return forks


def _variation(a: RunState, b: RunState) -> float:
    weights: tuple[dict[Prefix, float], ...] = ({}, {})
    for own, run in zip(weights, (a, b), strict=True):
        for text, weight in _texts(run):
            own[text] = own.get(text, 0.0) + weight
    texts = weights[0].keys() | weights[1].keys()
    return (
        math.fsum(abs(weights[0].get(text, 0.0) - weights[1].get(text, 0.0)) for text in texts) / 2
    )


HEADINGS: Final = ("Fork after", "In B", "Entropy in A", "Entropy in B")
SHOWN: Final = 12  # rows of the table on the page
_LENGTH: Final = 60  # characters of the text before a fork


def moved_measures(moved: Moved) -> dict[str, str]:
    """Where the trees begin to differ, how many forks do, and how much weight moves, by title."""
    return {
        "First token that differs": "none" if moved.first is None else f"{moved.first:,}",
        "Forks of A that vanish": f"{len(moved.vanished):,}",
        "Forks of B that appear": f"{len(moved.appeared):,}",
        "Weight on other texts": f"{moved.weight:.1%}",
    }


def moved_rows(moved: Moved) -> list[tuple[str, ...]]:
    """The forks that appear or vanish, with the entropies of both runs there."""
    changes = [("appears", change) for change in moved.appeared]
    changes += [("vanishes", change) for change in moved.vanished]
    changes.sort(key=lambda change: len(change[1].text))
    return [
        (_end(change.text), what, *(_entropy(value) for value in (change.a, change.b)))
        for what, change in changes
    ]


def _end(text: str) -> str:
    words = visible(text)
    return f"…{words[-_LENGTH:]}" if len(words) > _LENGTH else words or "the prompt"


def _entropy(value: float | None) -> str:
    return "no such text" if value is None else f"{value:.4f} nats"
