"""The time that a forward pass takes."""

import time

import torch


class Stopwatch:
    """Measures the time from its creation until `stop`, without waiting for the pass.

    On CUDA the stream records the times, so the host can queue the work after the pass meanwhile.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._start, self._seconds = device, time.perf_counter(), 0.0
        self._begin = self._mark()
        self._end: torch.cuda.Event | None = None

    def _mark(self) -> torch.cuda.Event | None:
        """Record a CUDA event after the work queued so far; None on other devices."""
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def stop(self) -> None:
        """Stop after the work queued so far."""
        self._seconds, self._end = time.perf_counter() - self._start, self._mark()

    @property
    def seconds(self) -> float:
        """The time until `stop`; on CUDA, waits until the stream reaches it."""
        if self._begin is None or self._end is None:
            return self._seconds
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1000
