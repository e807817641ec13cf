"""Charts, a table and sentences about a model in every weight format."""

from typing import Any, Final

import pandas as pd

from eab.figures.charts import (
    GREY,
    add_line,
    bar_pattern,
    error_bars,
    from_zero,
    laid_out,
    line_style,
    log_axis,
)
from eab.figures.drawing import go
from eab.figures.timings import MILLI, in_ms
from eab.formatting import as_sentence, counted, human_bytes, listed, times
from eab.labs.quantization.results import FormatMissing, FormatReport, FormatStep
from eab.timing import NO_DIFFERENCE, NOTHING_YET, comparison, differs
from eab.weight_formats import AS_LOADED

HEADINGS: Final = (
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
NOTE: Final = (
    "All measured. Steps: medians of alternating repeats, with quartiles in brackets. KL: "
    "divergence of the next-token distribution from the model as loaded, in nats, over a "
    "held-out text and after the prompt. Forks that flip: tokens of that text at which only one "
    "of the two models would fork. Entropy error: mean distance from the known entropies, in "
    "bits. Embeddings stay as loaded. The held-out text is 24 of Aesop's Fables, older in style "
    "than the embedded model's training data."
)
_PATTERNS: Final = ("", "/", ".", "x")


def format_rows(report: FormatReport) -> list[tuple[str, ...]]:
    """One row of text per format."""
    return [
        (
            measured.weights,
            human_bytes(measured.total_bytes),
            in_ms(measured.steps[0].timing),
            "–" if measured.weights == AS_LOADED else _against(measured.steps[0]),
            f"{measured.nats_per_character:.4f}",
            f"{measured.divergence:.4f}",
            f"{measured.prompt_divergence:.4f}",
            f"{measured.flipped:.2%}",
            "–" if measured.entropy_error is None else f"{measured.entropy_error:.3f}",
        )
        for measured in report.formats
    ]


def formats_sentence(report: FormatReport) -> str:
    """How often the smallest format changes a fork decision."""
    if report.began is None or not report.formats:
        return NOTHING_YET
    small = min(report.formats, key=lambda measured: measured.total_bytes)
    return (
        f"With {small.weights}, for {small.flipped:.2%} of the tokens of a held-out text, the "
        f"entropy moves to the other side of the fork threshold ({report.began.threshold:g} nats)."
    )


def _against(step: FormatStep) -> str:
    return comparison(step.timing, step.loaded)


def missing_sentence(report: FormatReport) -> str:
    """The formats that this machine cannot compute; empty if it can compute all."""
    missing = report.of(FormatMissing)
    if not missing:
        return ""
    names = listed([absent.weights for absent in missing])
    return f"Not measured: {names}. {as_sentence(missing[0].reason)}"


def steps_figure(report: FormatReport) -> go.Figure:
    """The time of a step by format, one bar per number of rows, with quartiles."""
    figure = go.Figure()
    rows = [step.rows for step in report.formats[0].steps] if report.formats else []
    for index, count in enumerate(rows):
        timings = [
            (measured.weights, step.timing)
            for measured in report.formats
            if (step := measured.step(count)) is not None
        ]
        figure.add_bar(
            name=counted(count, "row"),
            x=[name for name, _ in timings],
            y=[MILLI * timing.median for _, timing in timings],
            error_y=error_bars([timing for _, timing in timings]),
            marker={
                "color": line_style(index).colour,
                "pattern": bar_pattern(_PATTERNS[index % len(_PATTERNS)]),
            },
            hovertemplate=f"%{{x}}, {counted(count, 'row')}: %{{y:.2f}} ms<extra></extra>",
        )
    figure.update_layout(barmode="group")
    return laid_out(figure, x="weights", y=from_zero("ms per step (median, quartiles)"))


def steps_sentence(report: FormatReport) -> str:
    """Each format's largest speedup over the weights as loaded, and its number of rows."""
    if not report.formats:
        return NOTHING_YET
    words = []
    for measured in report.formats:
        faster = [
            (step.loaded.median / step.timing.median, step.rows)
            for step in measured.steps
            if differs(step.timing, step.loaded) and step.timing.median < step.loaded.median
        ]
        if faster and measured.weights != AS_LOADED:
            gain, rows = max(faster)
            words.append(f"{measured.weights} {times(gain)} with {counted(rows, 'row')}")
    if not words:
        return f"Speed compared with the weights as loaded: {NO_DIFFERENCE}, or slower."
    return f"Faster than the weights as loaded, at most: {listed(words)}."


def quality_figure(report: FormatReport) -> go.Figure:
    """The divergence from the model as loaded over the total weight bytes."""
    figure = go.Figure()
    others = [measured for measured in report.formats if measured.weights != AS_LOADED]
    for index, measured in enumerate(others):
        points = [(measured.total_bytes / 2**20, measured.divergence)]
        hover = "%{x:.1f} MiB: %{y:.4f} nats"
        add_line(figure, measured.weights, points, line_style(index), hover)
    if report.formats:
        full = report.formats[0].total_bytes / 2**20
        figure.add_vline(x=full, line={"color": GREY, "width": 2, "dash": "dash"})
        figure.add_annotation(
            x=full,
            y=1,
            yref="paper",
            text="as loaded: 0",
            showarrow=False,
            xanchor="right",
            xshift=-6,
        )
    figure.update_traces(marker_size=13)
    return laid_out(figure, x=from_zero("MiB of all weights"), y=log_axis("KL, nats per token"))


def quality_sentence(report: FormatReport) -> str:
    """The formats that change the next-token distribution least and most."""
    others = [measured for measured in report.formats if measured.weights != AS_LOADED]
    if not others:
        return NOTHING_YET
    near, far = (pick(others, key=lambda measured: measured.divergence) for pick in (min, max))
    return (
        f"Over {counted(report.began.tokens if report.began else 0, 'token')} of held-out text, "
        f"{near.weights} moves the next-token distribution least ({near.divergence:.4f} nats per "
        f"token) and {far.weights} most ({far.divergence:.4f})."
    )


def formats_table(report: FormatReport) -> pd.DataFrame:
    """One row of numbers per format and number of rows: bytes, seconds, nats, bits."""
    rows: list[dict[str, Any]] = []
    for measured in report.formats:
        for step in measured.steps:
            rows.append(
                {
                    "weights": measured.weights,
                    "total_bytes": measured.total_bytes,
                    "read_bytes": measured.read_bytes,
                    "rows": step.rows,
                    "seconds": step.timing.median,
                    "seconds_low": step.timing.low,
                    "seconds_high": step.timing.high,
                    "loaded_seconds": step.loaded.median,
                    "nats_per_character": measured.nats_per_character,
                    "divergence": measured.divergence,
                    "prompt_divergence": measured.prompt_divergence,
                    "flipped": measured.flipped,
                    "entropy_error_bits": measured.entropy_error,
                }
            )
    return pd.DataFrame(rows)
