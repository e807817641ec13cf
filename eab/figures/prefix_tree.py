"""The prefix cache of a model: which prefixes it holds, and how many runs read them."""

from collections.abc import Sequence
from typing import Final

from eab import token_text
from eab.analysis.prefixes import PrefixesNow, SegmentNow
from eab.figures.charts import laid_out, text_label
from eab.figures.drawing import go
from eab.formatting import counted, human_bytes

COLUMNS: Final = ("Text", "Rows", "Bytes", "Current readers", "Runs or probes that reused it")
_LABEL: Final = 60  # characters
_ACROSS: Final = 120  # characters side by side; plotly hides a text that is too long
_READ, _UNREAD = "#1768a3", "#6b6b6b"  # backgrounds of white text
_UNSHOWN: Final = "text of another run"


def prefix_sentence(now: PrefixesNow) -> str:
    """What the prefix cache holds and has saved, or why it is empty."""
    if not now.byte_limit:
        reason = (
            "the prefix cache is turned off (rule prefix_cache_mib)."
            if now.can_reuse
            else "the cache of this model cannot be reused for a longer text: its states are those "
            "after the last token, or its rows depend on the length."
        )
        return f"Every run of {now.model} computes its whole prompt: {reason}"
    if not now.segments:
        reason = (
            f"no text so far fitted into it (at most {human_bytes(now.byte_limit)}), or runs "
            "needed the memory."
            if now.tokens_asked
            else "no run has been made yet."
        )
        return f"The prefix cache of {now.model} is empty: {reason}"
    readers = sum(segment.readers for segment in now.segments if segment.parent < 0)
    verb = "reads" if readers == 1 else "read"
    reading = f"{counted(readers, 'run')} {verb} it now. " if readers else ""
    share = now.tokens_found / max(1, now.tokens_asked)
    return (
        f"The prefix cache of {now.model} holds {counted(len(now.segments), 'segment')} in "
        f"{human_bytes(now.bytes_held)} (at most {human_bytes(now.byte_limit)}). {reading}"
        f"{now.tokens_found:,} of {counted(now.tokens_asked, 'prompt token')} ({share:.0%}) were "
        "found in it and not computed again."
    )


def prefix_figure(now: PrefixesNow) -> go.Figure:
    """The segments, each to the right of its parent, with heights proportional to their rows."""
    segments = now.segments
    in_a_row = max(8, _ACROSS // _depth(segments))
    figure = go.Figure(
        go.Icicle(
            ids=[str(segment.number) for segment in segments],
            parents=["" if segment.parent < 0 else str(segment.parent) for segment in segments],
            labels=[_label(segment) for segment in segments],
            text=[_label(segment, in_a_row) for segment in segments],
            textinfo="text",
            values=[segment.rows for segment in segments],
            branchvalues="remainder",
            customdata=[
                [
                    counted(segment.rows, "row"),
                    human_bytes(segment.rows * now.row_bytes),
                    counted(segment.readers, "run"),
                    segment.found,
                ]
                for segment in segments
            ],
            hovertemplate="%{label}<br>%{customdata[0]}, %{customdata[1]}<br>"
            "read by %{customdata[2]} now<br>"
            "runs or probes that reused it: %{customdata[3]}<extra></extra>",
            marker={"colors": [_READ if segment.readers else _UNREAD for segment in segments]},
            leaf={"opacity": 1},
            textfont={"color": "white"},
            tiling={"orientation": "h"},
            pathbar={"visible": False},
        )
    )
    laid_out(figure, height=320)
    figure.update_layout(
        margin_t=8, uirevision="prefixes", uniformtext={"minsize": 10, "mode": "hide"}
    )
    return figure


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


def _label(segment: SegmentNow, characters: int = _LABEL) -> str:
    text = _UNSHOWN if segment.text is None else token_text.visible(segment.text)
    return text_label(text, characters)


def _depth(segments: Sequence[SegmentNow]) -> int:
    """The number of segments in the longest chain; at least 1."""
    depths = {-1: 0}  # by segment number
    for segment in segments:
        depths[segment.number] = depths[segment.parent] + 1
    return max(1, *depths.values())
