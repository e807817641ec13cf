"""Functions that wait for the runs of a worker."""

import time
from collections.abc import Callable
from typing import Any

from app.server.live_run import LiveTask


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def finished(run: LiveTask[Any]) -> bool:
    return not run.active


def ended(run: LiveTask[Any]) -> LiveTask[Any]:
    """Wait until the run has ended, and return it."""
    wait_until(lambda: finished(run))
    return run
