"""Slots over time: which request each slot served in each pass, and when it was idle. Also the
slots of a server over the last seconds, without any prompt text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from eab.analysis.schedule import Schedule, ScheduledPass, Segment
from eab.figures.charts import BLUE, GOLD, GREEN, GREY, ORANGE, PURPLE, bar_pattern, go, laid_out
from eab.formatting import counted

Across = Literal["seconds", "passes"]
COLOURS: Final = (BLUE, ORANGE, GREEN, PURPLE, GOLD)  # for requests; the colours repeat
_LABEL_ROOM: Final = 0.02  # share of the axis; a label on a shorter bar would cover its neighbours
_IDLE: Final = {True: "idle while a request waits", False: "idle, nothing waits"}


@dataclass(frozen=True, slots=True)
class Lane:
    """One schedule in a figure."""

    schedule: Schedule
    axis: str  # the figure's y axis: "y", "y2" and so on
    across: Across  # what the x axis counts
    names: Mapping[int, str]  # names of the runs in the hover text, by run number
    labels: Mapping[int, str]  # labels inside the bars
    until: float  # the end of the x axis
    offset: float = 0.0  # where the schedule starts on the x axis

    def span(self, first: int, last: int) -> tuple[float, float]:
        """Where these passes start on the x axis, and their length."""
        if self.across == "passes":
            return self.offset + first, last - first + 1
        start = self.schedule.start(first)
        return self.offset + start, self.schedule.ends[last] - start


def add_work(figure: go.Figure, lane: Lane) -> None:
    """Draw what each slot served, one row per slot."""
    for rank, (work, shape) in enumerate((("prefill", "/"), ("decode", ""))):
        segments = [segment for segment in lane.schedule.segments() if segment.work == work]
        _add_bars(
            figure,
            lane,
            f"{work}, one colour per request",
            rank,
            [(segment.slot, *lane.span(segment.first, segment.last)) for segment in segments],
            [COLOURS[segment.run % len(COLOURS)] for segment in segments],
            shape,
            [_words(segment, lane.names) for segment in segments],
        )
    _add_labels(figure, lane)


def add_idle(figure: go.Figure, lane: Lane) -> None:
    """Draw when the slots were idle."""
    idle = lane.schedule.idle()
    for rank, (awaited, shape) in enumerate(((True, "x"), (False, ".")), start=2):
        chosen = [gap for gap in idle if gap.awaited == awaited]
        _add_bars(
            figure,
            lane,
            _IDLE[awaited],
            rank,
            [(gap.slot, *lane.span(gap.first, gap.last)) for gap in chosen],
            [GREY] * len(chosen),
            shape,
            [
                f"slot {gap.slot + 1}: {_IDLE[awaited]}, "
                f"{counted(gap.last - gap.first + 1, 'forward pass')}"
                for gap in chosen
            ],
        )


def _words(segment: Segment, names: Mapping[int, str]) -> str:
    passes = counted(segment.last - segment.first + 1, "forward pass")
    tokens = counted(segment.tokens, "token")
    return f"{names[segment.run]}<br>slot {segment.slot + 1}, {segment.work}: {tokens} in {passes}"


def _add_bars(
    figure: go.Figure,
    lane: Lane,
    name: str,
    rank: int,
    spans: Sequence[tuple[int, float, float]],
    colours: Sequence[str],
    shape: str,
    words: Sequence[str],
) -> None:
    pattern = bar_pattern(shape)
    if shape in ("x", "."):  # grey pattern on a light ground, less prominent than the work
        pattern |= {"fillmode": "replace", "fgcolor": GREY, "bgcolor": "rgba(140,140,140,0.15)"}
        pattern["fgopacity"] = 0.8 if shape == "x" else 0.45
        pattern["size"], pattern["solidity"] = 7, 0.15
    figure.add_bar(
        name=name,
        orientation="h",
        base=[start for _, start, _ in spans],
        x=[length for _, _, length in spans],
        y=[slot for slot, _, _ in spans],
        yaxis=lane.axis,
        marker={"color": colours or [GREY], "line": {"width": 0}, "pattern": pattern},
        customdata=words,
        hovertemplate="%{customdata}<extra></extra>",
        legendgroup=name,
        showlegend=bool(spans) and all(trace.name != name or not trace.y for trace in figure.data),
        legendrank=rank,
        width=0.86,
    )


def _add_labels(figure: go.Figure, lane: Lane) -> None:
    notes = []
    for segment in lane.schedule.segments():
        start, length = lane.span(segment.first, segment.last)
        if segment.work == "decode" and length > _LABEL_ROOM * lane.until:
            notes.append(
                {
                    "x": start + length / 2,
                    "y": segment.slot,
                    "yref": lane.axis,
                    "text": lane.labels[segment.run],
                    "showarrow": False,
                    "font": {"color": "black", "size": 12},
                }
            )
    # Add all in one step: plotly copies the list of annotations whenever one is added.
    figure.layout.annotations = [*figure.layout.annotations, *notes]


NOTHING_SERVED: Final = (
    "Nothing is being served. Press Run on Explore in several tabs to see the batch fill here."
)
WINDOW: Final = 20.0  # seconds on the x axis
RATE_WINDOW: Final = 5.0  # seconds over which new tokens are counted
_LEAST_SLOTS: Final = 4  # minimum number of rows in the chart
_GAP: Final = 0.05  # a longer time (seconds) without a pass is drawn as a gap


class TimedPass(NamedTuple):
    """A pass and its end, in seconds relative to the moment of the chart (at most 0)."""

    ended: float
    record: ScheduledPass


def rate(passes: Sequence[TimedPass]) -> float:
    """New tokens per second, over all runs and the last RATE_WINDOW seconds."""
    new = sum(
        part.new_tokens
        for timed in passes
        if timed.ended > -RATE_WINDOW
        for part in timed.record.served
    )
    return new / RATE_WINDOW


def now_figure(passes: Sequence[TimedPass], busy: bool) -> go.Figure:
    """The slots over the last seconds; the x axis ends now while `busy`."""
    figure = go.Figure()
    seen = [timed for timed in passes if timed.ended > -WINDOW]
    slots = max([_LEAST_SLOTS, *(part.slot + 1 for timed in seen for part in timed.record.served)])
    if seen:
        schedule = Schedule(slots, tuple(_with_gaps(seen)))
        labels = {run: f"run {run}" for run in sorted(schedule.by_run)}
        begins = seen[-1].ended - schedule.seconds
        add_work(figure, Lane(schedule, "y", "seconds", labels, labels, WINDOW, begins))
    numbers = [*range(0, slots, 1 + slots // 16)]
    title = "seconds from now" if busy else "seconds from the last pass"
    laid_out(
        figure,
        320,
        {"title": title, "range": [-WINDOW, 0], "zeroline": False},
        {
            "title": "slot",
            "range": [slots - 0.5, -0.5],
            "tickvals": numbers,
            "ticktext": [str(slot + 1) for slot in numbers],
            "showgrid": False,
            "zeroline": False,
        },
    )
    figure.update_layout(barmode="overlay", hovermode="closest", uirevision="now")
    return figure


def _with_gaps(passes: Sequence[TimedPass]) -> list[ScheduledPass]:
    """The passes, with an empty pass wherever nothing was served for a while."""
    scheduled = [passes[0].record]
    for before, timed in pairwise(passes):
        gap = max(0.0, timed.ended - timed.record.seconds - before.ended)
        if gap > _GAP:
            scheduled.append(ScheduledPass(gap, 0, ()))
            gap = 0.0
        # A short gap is added to the pass, so that every pass still ends when it was measured.
        scheduled.append(timed.record._replace(seconds=timed.record.seconds + gap))
    return scheduled
