"""KV memory under three allocation schemes: a chart, a sentence and tables. Also the prefix cache
of a model: which prefixes it holds, and how many runs read them.
"""

from typing import Final

import pandas as pd

from eab import token_text
from eab.analysis.kv_allocation import SCHEMES, KvAllocation, Scheme
from eab.analysis.schedule import PrefixesNow, SegmentNow
from eab.figures.charts import BLUE, GREY, ORANGE, bar_pattern, byte_unit, laid_out
from eab.figures.drawing import go, make_subplots
from eab.figures.tables import text_table
from eab.formatting import human_bytes, listed, shortened, with_ratio
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


COLUMNS: Final = ("Text", "Rows", "Bytes", "Current readers", "Runs or probes that reused it")
_LABEL: Final = 60  # characters
_UNSHOWN: Final = "text of another run"


def prefix_measures(now: PrefixesNow) -> dict[str, str]:
    """What the prefix cache holds and has saved, by title."""
    share = now.tokens_found / max(1, now.tokens_asked)
    return {
        "Segments": f"{len(now.segments):,}",
        "Held": human_bytes(now.bytes_held),
        "At most": human_bytes(now.byte_limit),
        "Runs that read it": str(sum(one.readers for one in now.segments if one.parent < 0)),
        "Prompt tokens": f"{now.tokens_asked:,}",
        "Of these found": f"{share:.0%}",
    }


def why_no_prefixes(now: PrefixesNow) -> str:
    """Why the prefix cache of a model is empty; empty if it is not."""
    if now.segments:
        return ""
    if now.byte_limit and not now.tokens_asked:
        return "Empty: no run has been made yet."
    if now.byte_limit:
        most = human_bytes(now.byte_limit)
        return f"Empty: no text fitted into it (at most {most}), or runs needed the memory."
    if now.can_reuse:
        return "Turned off (rule prefix_cache_mib)."
    return (
        "The memory of this model cannot be reused for a longer text: its states are those after "
        "the last token, or its rows depend on the length."
    )


def prefix_rows(now: PrefixesNow) -> list[list[str]]:
    """The segments as table rows: text, rows, bytes, readers, found."""
    return [
        [
            _label(segment),
            f"{segment.rows:,}",
            human_bytes(segment.rows * now.row_bytes),
            f"{segment.readers}",
            f"{segment.found:,}",
        ]
        for segment in now.segments
    ]


def _label(segment: SegmentNow) -> str:
    return shortened(_UNSHOWN if segment.text is None else token_text.visible(segment.text), _LABEL)
