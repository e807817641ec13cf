"""Progress and queue position of a task: a share from 0 to 1, and a text."""

from typing import Any

from app.server.live_run import LiveTask
from app.server.queue import QueuePosition
from app.state.process import worker
from eab.figures.captions import ENDINGS
from eab.formatting import human_seconds, ordinal


def progress(live: LiveTask[Any]) -> tuple[float, str]:
    """The progress of a task, as a share from 0 to 1 and as a text."""
    if (early := _not_running(live)) is not None:
        return early
    with live.lock:
        if not live.active:
            ended = ENDINGS[live.ending[0]]
            made = live.state.made
            when = "before the first result" if made.startswith("0 ") else f"after {made}"
            return 1.0, f"{ended} {when}"
        if live.reading is not None:
            read, of = live.reading
            return read / of, f"Reading the prompt: {read:,} of {of:,} tokens"
        now = live.state.progress
        return min(1.0, now.share), now.words


def _not_running(live: LiveTask[Any]) -> tuple[float, str] | None:
    """Progress of a task that is loading, waiting or failed; None if it is running or has ended.

    Call it without holding the task's lock, because the worker takes the lock of its queue before
    the lock of a task.
    """
    if live.status == "loading":
        return 0.0, "Loading the model ..."
    if (position := worker().position(live)) is not None:
        return 0.0, _queued(position)
    return (1.0, "Run failed") if live.status == "failed" else None


def _queued(position: QueuePosition) -> str:
    seconds = position.seconds
    about = f", about {human_seconds(seconds)}, estimated from earlier runs" if seconds else ""
    place = f"you are {ordinal(position.number)} of {position.total} in line"
    return f"Waiting: {place}{about}. Press Stop to leave the queue."
