"""What a lesson can show instead of the board, by name: charts, and sliders for a formula."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from eab.engine.speculation.stats import expected_tokens
from eab.figures.kv_schemes import allocation_figure, allocation_sentence, kv_allocation
from eab.labs.batching import TITLES, shown, workload_of
from eab.labs.caches import BYTES, PROCESSED, paths_chart, paths_sentence
from eab.labs.drafts import DRAFTS, GAINS
from eab.labs.measurement import Lab, Report
from eab.labs.quantization import FORMATS
from eab.lessons.measures import Source, Sources, Unit

if TYPE_CHECKING:
    from eab.figures.charts import go


Drawn = tuple[str, "go.Figure"]  # a sentence about the chart, and the chart


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart."""

    source: Source  # where its data comes from
    draw: Callable[[Sources], Drawn]


# Charts are imported only when they are drawn, because plotly takes half a second to import.


def _shared_rows(sources: Sources) -> Drawn:
    from eab.labs.charts import chart_figure

    return paths_sentence(sources.run), chart_figure(paths_chart(sources.run))


def _allocation(sources: Sources) -> Drawn:
    allocation = kv_allocation([sources.run])
    return allocation_sentence(allocation), allocation_figure(allocation)


def _schedules(sources: Sources) -> Drawn:
    from eab.labs.charts import batching_figure

    report = sources.batching()
    idle = [
        f"{TITLES[way]}: {100 * schedule.idle_share:.3g}% of the slots are idle."
        for way, schedule in shown(report).items()
    ]
    return " ".join(idle), batching_figure(report, "passes")


def _described(lab: Lab, report: Report) -> Drawn:
    from eab.labs.charts import chart_figure

    assert lab.chart is not None
    return lab.answer(report), chart_figure(lab.chart(report))


def _answers(sources: Sources) -> Drawn:
    from eab.analysis.answers import group_answers
    from eab.figures.answers import answers_figure
    from eab.figures.captions import answers_sentence

    answers = group_answers(sources.run)
    return answers_sentence(answers), answers_figure(answers)


PICTURES: Final[dict[str, Picture]] = {
    "processed tokens": Picture("caches", lambda sources: _described(PROCESSED, sources.caches())),
    "bytes copied and held": Picture("caches", lambda sources: _described(BYTES, sources.caches())),
    "shared rows": Picture("run", _shared_rows),
    "slabs, blocks and rows": Picture("run", _allocation),
    "tokens per forward pass": Picture(
        "draft lengths", lambda sources: _described(DRAFTS, sources.draft_lengths())
    ),
    "when drafts pay": Picture(
        "draft lengths", lambda sources: _described(GAINS, sources.draft_lengths())
    ),
    "three ways to serve": Picture("batching", _schedules),
    "weight formats": Picture("formats", lambda sources: _described(FORMATS, sources.formats())),
    "answers": Picture("run", _answers),
}


def point_at(figure: "go.Figure", words: str) -> None:
    """Frame the part of a chart with these words in its title, or fade the lines without them."""
    from eab.figures.charts import GREEN

    titles = [note for note in figure.layout.annotations if words in (note.text or "").lower()]
    for axis in figure.select_yaxes():
        if words and titles and axis.domain and abs(axis.domain[1] - titles[0].y) < 1e-6:
            place = dict(zip(("y0", "y1"), axis.domain, strict=True), x0=0, x1=1)
            place |= {"line_color": GREEN, "line_width": 4}
            figure.add_shape(type="rect", xref="paper", yref="paper", **place)
    for trace in figure.data:
        if words and not titles and words not in (trace.name or "").lower():
            trace.opacity = 0.3


Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Knob:
    """A slider over these values, in ascending order."""

    label: str
    values: tuple[float, ...]
    start: float  # initial value


@dataclass(frozen=True, slots=True)
class Calculator:
    """Sliders and the results computed from them."""

    knobs: Mapping[str, Knob]
    results: Mapping[str, Unit]  # the unit of each result, by name
    compute: Callable[[Values, Sources], Mapping[str, float]]  # values of the sliders -> results
    formula: str  # how the results are computed, as Markdown for the reader

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that a goal can refer to: the results and the sliders themselves."""
        return (*self.results, *self.knobs)

    def numbers(self, values: Values, sources: Sources) -> dict[str, float]:
        """The value of each of `names` at these slider positions."""
        return {**self.compute(values, sources), **values}


def _kv_bytes(values: Values, _: Sources) -> dict[str, float]:
    per_token = (
        2 * values["layers"] * values["KV heads"] * values["head size"] * values["bytes per number"]
    )
    per_text = per_token * values["tokens"] + values["MiB of state"] * 2**20
    return {"bytes per token": per_token, "bytes per text": per_text}


def _drafts(values: Values, _: Sources) -> dict[str, float]:
    return {"tokens per pass": expected_tokens(values["alpha"] / 100, int(values["length"]))}


def _blocks(values: Values, sources: Sources) -> dict[str, float]:
    allocation = kv_allocation([sources.run], int(values["block"]))
    return {"waste": allocation.wasted_share("blocks")}


def _static_batches(values: Values, sources: Sources) -> dict[str, float]:
    """Passes that requests of these lengths take in static batches, without the prefill."""
    slots = int(values["slots"])
    lengths = [request.new_tokens for request in workload_of(sources.batching()).requests]
    passes = sum(max(lengths[first : first + slots]) for first in range(0, len(lengths), slots))
    return {"passes": passes, "idle slots": 1 - sum(lengths) / (slots * passes)}


def _rounding(values: Values, _: Sources) -> dict[str, float]:
    bits, group = values["bits"], values["group"]
    step = 2 * math.sqrt(2 * math.log(group)) / (2**bits - 1)
    return {"error": step / math.sqrt(12), "bits per weight": bits + 32 / group}


CALCULATORS: Final[dict[str, Calculator]] = {
    "KV bytes": Calculator(
        {
            "layers": Knob("Layers", (4, 8, 16, 32, 48, 64, 80), 32),
            "KV heads": Knob("KV heads", (1, 2, 4, 8, 16, 32, 64), 32),
            "head size": Knob("Head size", (32, 64, 96, 128, 256), 128),
            "bytes per number": Knob("Bytes per number", (1, 2, 4), 2),
            "tokens": Knob("Tokens in the text", (512, 1024, 2048, 4096, 8192, 16384), 4096),
            "MiB of state": Knob("State per text (MiB)", (0, 1, 4, 16, 64), 0),
        },
        {"bytes per token": "bytes", "bytes per text": "bytes"},
        _kv_bytes,
        "bytes per token = 2 × layers × KV heads × head size × bytes per number; bytes per text = "
        "bytes per token × tokens + state",
    ),
    "draft tokens": Calculator(
        {
            "alpha": Knob("Acceptance rate (%)", tuple(range(0, 100, 5)), 50),
            "length": Knob("Draft tokens per pass", tuple(range(17)), 1),
        },
        {"tokens per pass": ""},
        _drafts,
        r"(1 − α^(k+1)) / (1 − α) for k draft tokens at the acceptance rate α",
    ),
    "block size": Calculator(
        {"block": Knob("Rows per block", (1, 2, 4, 8, 16, 32, 64, 128), 64)},
        {"waste": "share"},
        _blocks,
        "computed from this run with the rules of a paged cache",
    ),
    "static batches": Calculator(
        {"slots": Knob("Slots", (1, 2, 3, 4, 5, 6, 8, 10), 8)},
        {"passes": "", "idle slots": "share"},
        _static_batches,
        "passes = sum over the batches of the longest text; prefill is not counted",
    ),
    "rounding": Calculator(
        {
            "bits": Knob("Bits per weight", tuple(range(2, 9)), 8),
            "group": Knob("Weights that share a scale", (8, 16, 32, 64, 128), 128),
        },
        {"error": "share", "bits per weight": ""},
        _rounding,
        "bits per weight = bits + 32 / group, for a scale and a zero point of 16 bits each; "
        "error = step / √12 of the weights' standard deviation, where the grid spans twice "
        "√(2 ln group), about the range of so many normally distributed weights",
    ),
}
