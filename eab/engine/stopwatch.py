"""How long a forward pass takes, without waiting for it."""

import time

import torch


class Stopwatch:
    """Runs from when it is made until `stop`.

    On CUDA the stream notes the times, so the host does not wait for the pass: it queues what comes
    after it meanwhile.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._start, self._seconds = device, time.perf_counter(), 0.0
        self._begin = self._mark()
        self._end: torch.cuda.Event | None = None

    def _mark(self) -> torch.cuda.Event | None:
        """On CUDA, an event after the work that was queued until now."""
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def stop(self) -> None:
        """Stop after the work that was queued until now."""
        self._seconds, self._end = time.perf_counter() - self._start, self._mark()

    @property
    def seconds(self) -> float:
        """The time until `stop`; on CUDA, wait until the stream is there."""
        if self._begin is None or self._end is None:
            return self._seconds
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1000
