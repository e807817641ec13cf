"""What a server is serving now: its slots over the last seconds, without any prompt text."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from eab.analysis.schedule import Schedule, ScheduledPass
from eab.figures.charts import BLUE, laid_out
from eab.figures.drawing import go
from eab.figures.schedule import CURSOR, Lane, add_steps, add_work
from eab.formatting import counted, human_bytes

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


def now_sentence(passes: Sequence[TimedPass], running: int, waiting: int) -> str:
    """How many runs are served and waiting, how fast, and in how much memory."""
    if not running and not waiting:
        return NOTHING_SERVED
    held = passes[-1].record.kv_bytes if passes else 0
    verb = "is" if running == 1 else "are"
    waits = "waits" if waiting == 1 else "wait"
    return (
        f"{counted(running, 'run')} {verb} in the batch, {waiting} {waits}; "
        f"{rate(passes):.0f} new tokens per second, {human_bytes(held)} of KV held, "
        "not counting the prefix cache."
    )


def now_figure(passes: Sequence[TimedPass], busy: bool) -> go.Figure:
    """Slots, and tokens per pass, over the last seconds; the x axis ends now while `busy`."""
    figure = go.Figure()
    seen = [timed for timed in passes if timed.ended > -WINDOW]
    slots = max([_LEAST_SLOTS, *(part.slot + 1 for timed in seen for part in timed.record.served)])
    if seen:
        schedule = Schedule(slots, tuple(_with_gaps(seen)))
        runs = sorted(schedule.by_run)
        labels = {run: f"run {run}" for run in runs}
        begins = seen[-1].ended - schedule.seconds
        lane = Lane(schedule, "y", "seconds", labels, labels, WINDOW, begins)
        add_work(figure, lane)
        add_steps(
            figure,
            Lane(schedule, "y2", "seconds", labels, labels, WINDOW, begins),
            [served.tokens for served in schedule.passes],
            {"color": BLUE, "dash": "solid"},
            "tokens per pass",
            lambda value: f"{value:.0f}",
            legend=False,
        )
    laid_out(figure, height=420)
    figure.update_layout(
        barmode="overlay",
        hovermode="closest",
        spikedistance=-1,
        xaxis={
            "title": "seconds from now" if busy else "seconds from the last pass",
            "range": [-WINDOW, 0],
            "anchor": "y2",
            "zeroline": False,
            **CURSOR,
        },
        yaxis={
            "title": "slot",
            "domain": [0.36, 1],
            "range": [slots - 0.5, -0.5],
            "tickvals": [*range(0, slots, 1 + slots // 16)],
            "ticktext": [str(slot + 1) for slot in range(0, slots, 1 + slots // 16)],
            "showgrid": False,
            "zeroline": False,
        },
        yaxis2={"title": "tokens per pass", "domain": [0, 0.28], "rangemode": "tozero"},
        uirevision="now",
    )
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
