"""The machine: its one-line description, its memory, which errors mean out of memory, and how long
it takes for a forward pass.
"""

import os
import platform
import sys
import time
from pathlib import Path
from typing import Final

import psutil
import torch

from eab.formatting import counted

CPU: Final = torch.device("cpu")
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# No library has a single class for these errors: they come from the CPU allocator, from CUDA (with
# an error of its own for pinned memory) and from cuBLAS.
_OUT_OF_MEMORY: Final = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


def describe_machine(device: str = "cpu") -> str:
    """The processor and its threads, the GPU if the device is one, and the PyTorch version."""
    threads = counted(torch.get_num_threads(), "thread")
    cores = counted(os.cpu_count() or 1, "core")
    names = [f"{_processor()}, {threads} on {cores}", f"torch {torch.__version__}"]
    if device.startswith("cuda"):
        names.insert(0, torch.cuda.get_device_name(device))
    return ", ".join(names)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def free_memory(device: torch.device = CPU) -> int:
    """Bytes of free memory: of this GPU, or of the machine within the container's limit."""
    if device.type == "cuda":
        # PyTorch holds on to freed memory.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    held = psutil.Process().memory_info().rss
    return max(0, min(psutil.virtual_memory().available, _container_limit() - held))


def total_memory(device: torch.device = CPU) -> int:
    """Bytes of memory of this machine or container, or of this GPU."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return min(psutil.virtual_memory().total, _container_limit())


def _container_limit() -> int:
    """Bytes, from cgroup version 2 or 1; a huge number if there is no limit."""
    for name in _LIMITS:
        try:
            words = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(words) if words.isdigit() else sys.maxsize
    return sys.maxsize


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means that the machine or its GPU ran out of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = str(error)
    return isinstance(error, RuntimeError) and any(part in words for part in _OUT_OF_MEMORY)


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
