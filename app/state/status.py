"""Progress and queue position of what is being made: a share from 0 to 1, and words."""

from typing import Any

from app.server.live_run import (
    LiveBatching,
    LiveFormats,
    LiveReport,
    LiveRun,
    LiveTask,
    LiveTuning,
    LiveVariants,
)
from app.server.queue import QueuePosition
from app.state.process import worker
from eab.figures.captions import ENDINGS
from eab.formatting import as_sentence, counted, human_seconds, ordinal


def run_progress(live: LiveRun) -> tuple[float, str]:
    """Progress of a run."""
    if (early := _not_running(live)) is not None:
        return early
    run = live.state.run
    steps = len(run.steps) if run is not None else 0
    if not live.active:
        return 1.0, f"{ENDINGS[live.ending[0]]} after {counted(steps, 'step')}"
    if run is None:
        return 0.0, f"Probing the prompt: step {len(live.state.probe)}"
    last = run.started.config.max_new_tokens
    return min(1.0, steps / last), f"Step {steps} of {last}"


def variants_progress(live: LiveVariants) -> tuple[float, str]:
    """Progress of a comparison."""
    if (early := _not_running(live)) is not None:
        return early
    with live.lock:
        compared, steps = live.state, live.config.max_new_tokens
        variants = counted(len(compared.variants), compared.kind)
        if not live.active:
            repeats = f", {counted(compared.repeats, 'repeat')}" if compared.complete else ""
            return 1.0, f"{ENDINGS[live.ending[0]]}: {len(compared.pairs)} of {variants}{repeats}"
        if compared.complete:
            return min(1.0, compared.progress.share), as_sentence(compared.progress.words)
        number = compared.begun
        if not number:
            return 0.0, "Begins"
        step = compared.current_step
        share = (number - 1 + min(1.0, step / steps)) / len(compared.variants)
        return share, f"{compared.current} ({number} of {variants}): step {step} of {steps}"


def report_progress(live: LiveReport | LiveFormats) -> tuple[float, str]:
    """Progress of a measurement."""
    if (early := _not_running(live)) is not None:
        return early
    with live.lock:
        return min(1.0, live.state.progress.share), live.state.progress.words


def batching_progress(live: LiveBatching) -> tuple[float, str]:
    """Progress of the same requests served in several ways."""
    if (early := _not_running(live)) is not None:
        return early
    with live.lock:
        served = counted(len(live.state.servings), "serving")
        if not live.active:
            return 1.0, f"{ENDINGS[live.ending[0]]} after {served}"
        return min(1.0, live.state.progress.share), live.state.progress.words or "Warming up"


def tuning_progress(live: LiveTuning) -> tuple[float, str]:
    """Progress of a sweep of settings."""
    if (early := _not_running(live)) is not None:
        return early
    with live.lock:
        cells = counted(len(live.state.cells), "cell")
        if not live.active:
            return 1.0, f"{ENDINGS[live.ending[0]]} after {cells}"
        return min(1.0, live.state.progress.share), live.state.progress.words or "Starting"


def _not_running(live: LiveTask[Any]) -> tuple[float, str] | None:
    """Progress of what is loading, waiting or failed; None for what has started or ended.

    Call it without holding the run's lock: the worker takes the lock of its queue first and that of
    a run second.
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
    return f"Waiting: {place}{about}. Stop leaves the line."
