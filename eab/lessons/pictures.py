"""The charts that a lesson can show instead of the board, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from eab.labs.quantization.rounding import Method, RoundingGrid, round_to_grid
from eab.lessons.sources import Source, Sources

if TYPE_CHECKING:
    from eab.figures.drawing import go

Drawn = tuple[str, "go.Figure"]  # a sentence about the chart, and the chart


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart."""

    source: Source  # where its data comes from
    draw: Callable[[Sources], Drawn]


# Charts are imported only when they are drawn, because plotly takes half a second to import.


def _processed_tokens(sources: Sources) -> Drawn:
    from eab.labs.variants.cache_pictures import processed_figure, processed_sentence

    compared = sources.caches()
    return processed_sentence(compared), processed_figure(compared)


def _copied(sources: Sources) -> Drawn:
    from eab.labs.variants import cache_pictures as caches

    sweep = sources.caches()
    return caches.totals_sentence(sweep), caches.totals_figure(sweep)


def _shared_rows(sources: Sources) -> Drawn:
    from eab.labs.variants import cache_pictures as caches

    return caches.paths_sentence(sources.run), caches.paths_figure(sources.run)


def _allocation(sources: Sources) -> Drawn:
    from eab.analysis.kv_allocation import kv_allocation
    from eab.figures import kv_allocation as figures

    allocation = kv_allocation([sources.run])
    return figures.allocation_sentence(allocation), figures.allocation_figure(allocation)


def _tokens_per_pass(sources: Sources) -> Drawn:
    from eab.labs.variants import draft_pictures as speculation

    sweep = sources.draft_lengths()
    return speculation.tokens_sentence(sweep), speculation.tokens_figure(sweep)


def _when_drafts_pay(sources: Sources) -> Drawn:
    from eab.labs.variants import draft_speed_pictures as speculation_speed

    sweep = sources.draft_lengths()
    return speculation_speed.surface_sentence(sweep), speculation_speed.surface_figure(sweep)


def _schedules(sources: Sources) -> Drawn:
    from eab.labs.batching.pictures import batching_figure
    from eab.labs.batching.results import TITLES

    comparison = sources.batching()
    idle = [
        f"{TITLES[way]}: {100 * schedule.idle_share:.3g}% of the slots are idle."
        for way, schedule in comparison.shown().items()
    ]
    return " ".join(idle), batching_figure(comparison, "passes")


def _one_matrix(method: Method, sources: Sources) -> Drawn:
    from eab.labs.quantization.matrix_pictures import grid_sentence, matrix_figure

    rounding = round_to_grid(sources.matrix(), RoundingGrid(method, bits=4, share=32))
    return grid_sentence(rounding), matrix_figure(rounding)


def _formats(sources: Sources) -> Drawn:
    from eab.labs.quantization.pictures import quality_figure, quality_sentence

    report = sources.formats()
    return quality_sentence(report), quality_figure(report)


def _answers(sources: Sources) -> Drawn:
    from eab.analysis.answers import group_answers
    from eab.figures.answers import answers_figure
    from eab.figures.captions import answers_sentence

    answers = group_answers(sources.run)
    return answers_sentence(answers), answers_figure(answers)


PICTURES: Final[dict[str, Picture]] = {
    "processed tokens": Picture("caches", _processed_tokens),
    "bytes copied and held": Picture("caches", _copied),
    "shared rows": Picture("run", _shared_rows),
    "slabs, blocks and rows": Picture("run", _allocation),
    "tokens per forward pass": Picture("draft lengths", _tokens_per_pass),
    "when drafts pay": Picture("draft lengths", _when_drafts_pay),
    "three ways to serve": Picture("batching", _schedules),
    "affine grid": Picture("matrix", partial(_one_matrix, "affine")),
    "NF4 grid": Picture("matrix", partial(_one_matrix, "nf4")),
    "weight formats": Picture("formats", _formats),
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
