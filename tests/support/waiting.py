"""Waiting for a condition, and for the runs of a worker."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from app.server.tasks import LiveTask

Found = TypeVar("Found")


def wait_until(
    condition: Callable[[], Found],
    seconds: float = 120.0,
    pause: Callable[[], object] = lambda: time.sleep(0.01),
) -> Found:
    """Wait until a condition holds, with pauses between its calls; return what it then returns."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        pause()
    return found


def finished(run: LiveTask[Any]) -> bool:
    return not run.active


def ended(run: LiveTask[Any]) -> LiveTask[Any]:
    """Wait until the run has ended, and return it."""
    wait_until(lambda: finished(run))
    return run
