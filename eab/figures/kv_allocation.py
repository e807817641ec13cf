"""KV memory under three allocation schemes: a chart, a sentence and tables."""

from typing import Final

import pandas as pd

from eab.figures.charts import (
    BLUE,
    GREY,
    ORANGE,
    bar_pattern,
    byte_unit,
    go,
    laid_out,
    make_subplots,
)
from eab.figures.kv_schemes import SCHEMES, KvAllocation, Scheme
from eab.figures.tables import text_table
from eab.formatting import human_bytes, listed, with_ratio
from eab.timing import NOTHING_YET

# For each part of the reserved bytes: name in the legend, field of Reserved, colour, pattern.
_PARTS: Final = (
    ("tokens", "used", BLUE, ""),
    ("the same tokens again", "copied", ORANGE, "/"),
    ("empty", "empty", GREY, "."),
)


def allocation_figure(allocation: KvAllocation) -> go.Figure:
    """Reserved bytes over the steps, by contents: one chart per scheme, one below the other."""
    titles = [f"{_name(allocation, scheme)} ({_source(allocation, scheme)})" for scheme in SCHEMES]
    figure = make_subplots(
        rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.1, subplot_titles=titles
    )
    most = max(map(allocation.peak, SCHEMES))
    unit, unit_name = byte_unit(most)
    for row, scheme in enumerate(SCHEMES, start=1):
        for name, field, colour, pattern in _PARTS:
            values = [getattr(reserved, field) / unit for reserved in allocation.steps[scheme]]
            numbers = [*range(len(values))]
            figure.add_scatter(
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                x=[*numbers, len(numbers)] if numbers else [],  # the last step also has a width
                y=values + values[-1:],
                customdata=numbers + numbers[-1:],
                mode="lines",
                line={"shape": "hv", "width": 0, "color": colour},
                stackgroup=scheme,
                fillcolor=colour,
                fillpattern=bar_pattern(pattern),
                hovertemplate=f"step %{{customdata}}, {name}: %{{y:.2f}} {unit_name}"
                "<extra></extra>",
                row=row,
                col=1,
            )
    figure.update_yaxes(title=f"{unit_name} reserved", range=[0, 1.05 * most / unit or 1])
    figure.update_xaxes(title="step", row=3, col=1)
    return laid_out(figure, height=620)


def allocation_sentence(allocation: KvAllocation) -> str:
    """What each scheme reserves at its peak, smallest first."""
    if not allocation.steps["tree"]:
        return NOTHING_YET
    ranked = sorted(SCHEMES, key=allocation.peak)
    least = allocation.peak(ranked[0])
    peaks = [
        f"{_name(allocation, scheme)} {with_ratio(allocation.peak(scheme), least, human_bytes)}"
        for scheme in ranked
    ]
    return f"Reserved at the peak: {'; '.join(peaks)}."


def allocation_table(allocation: KvAllocation) -> pd.DataFrame:
    """For reading: what each scheme reserves at its peak, and what this holds over all steps."""
    sums = [allocation.sum(scheme) for scheme in SCHEMES]
    rows = [("reserved at the peak", *(human_bytes(allocation.peak(scheme)) for scheme in SCHEMES))]
    rows += [
        (
            f"{name}, over all steps",
            *(_share(getattr(reserved, field), reserved.total) for reserved in sums),
        )
        for name, field, _, _ in _PARTS
    ]
    rows.append(("source", *(_source(allocation, scheme) for scheme in SCHEMES)))
    return text_table(rows, ["Measure", *(_name(allocation, scheme) for scheme in SCHEMES)])


def allocation_steps_table(allocation: KvAllocation) -> pd.DataFrame:
    """For download: one row per step and scheme, in bytes."""
    rows = [
        (step, scheme, part.used, part.copied, part.empty, part.total, _source(allocation, scheme))
        for scheme in SCHEMES
        for step, part in enumerate(allocation.steps[scheme])
    ]
    names = ["step", "scheme", "used_bytes", "copied_bytes", "empty_bytes", "reserved_bytes"]
    return pd.DataFrame(rows, columns=[*names, "source"])


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _name(allocation: KvAllocation, scheme: Scheme) -> str:
    match scheme:
        case "slab":
            return "slabs"
        case "blocks":
            return f"blocks of {allocation.block_size}"
        case "tree":
            return f"tree, r = {listed([*map(str, allocation.rs)])}"


def _source(allocation: KvAllocation, scheme: Scheme) -> str:
    return "measured" if scheme == "tree" and allocation.measured else "computed"
