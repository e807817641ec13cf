"""Decode passes captured as CUDA graphs: a small model's pass takes a GPU less time than the launching of its kernels.

A pass in a frame (eab.caches.frame) reads and writes the same memory until its cache grows. So what the model does with
it is captured once and replayed as a whole on the next pass's numbers.
"""

import logging
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

import torch
from torch import Tensor

from eab.caches.base import Pass
from eab.caches.frame import Era, Frame

Read: TypeAlias = Callable[[Pass], Tensor]  # one forward pass -> logits
Replay: TypeAlias = Callable[[], Tensor]  # the same on what the memory holds now -> the same tensor each time
Capture: TypeAlias = Callable[[Callable[[], Tensor]], Replay]
STREAMS: Final = 16  # on each device: caches whose passes are captured at a time
TOLERANCE: Final = {torch.float64: 1e-9, torch.float32: 1e-3}  # of a replay's logits; wider for the narrower types


class CapturedPasses:
    """Reads the passes of one model; those in frames are captured.

    captures: what captures the passes of one era, or None if it cannot now. The first replay must say what the pass
    said; where it does not, or capturing fails, nothing is captured any more, and the log says why.
    """

    def __init__(self, captures: Callable[[], Capture | None]) -> None:
        self._new_capture = captures
        self._captures: weakref.WeakKeyDictionary[Era, Capture | None] = weakref.WeakKeyDictionary()
        self._replays: weakref.WeakKeyDictionary[Frame, Replay] = weakref.WeakKeyDictionary()
        self._works = True

    def read(self, one: Pass, read: Read) -> Tensor:
        """One forward pass -> logits (K, V), which later passes do not overwrite."""
        frame = one.frame
        if frame is None or not self._works:
            return read(one)
        if frame in self._replays:
            return self._replays[frame]().clone()
        if frame.era not in self._captures:
            self._captures[frame.era] = self._new_capture()
        logits, capture = read(one), self._captures[frame.era]
        if capture is not None:
            self._keep(frame, lambda: capture(lambda: read(one)), logits)
        return logits

    def _keep(self, frame: Frame, captured: Callable[[], Replay], logits: Tensor) -> None:
        try:
            replay = captured()
            same = torch.allclose(replay(), logits, rtol=0.0, atol=_tolerance(logits), equal_nan=True)
        except RuntimeError as error:  # something in the forward pass waits for the GPU, or its memory is full
            return self._give_up(str(error))
        if not same:
            return self._give_up("a replay says otherwise than the pass")
        self._replays[frame] = replay

    def _give_up(self, reason: str) -> None:
        self._works = False
        logging.getLogger(__name__).warning("this model's passes are not captured as CUDA graphs: %s", reason)


def _tolerance(logits: Tensor) -> float:
    largest = logits.abs().nan_to_num(posinf=0.0).max().item()
    return TOLERANCE.get(logits.dtype, 0.1) * max(1.0, largest)


class CudaGraphs:
    """Captures the passes of one era on a stream and in a memory pool of their own.

    They are reset together, before the stream is used again: with the first graph of a stream that goes, PyTorch frees
    the cuBLAS workspace that the others of the stream still use (github.com/pytorch/pytorch/issues/193402).
    """

    _one_at_a_time = threading.Lock()

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        self._device, self._stream = device, stream
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []
        weakref.finalize(self, _retire, self._graphs, stream, _free_streams(device))

    def capture(self, read: Callable[[], Tensor]) -> Replay:
        """Read once on the stream, which sets up its libraries; then capture. RuntimeError if it cannot be captured."""
        with self._one_at_a_time, torch.cuda.device(self._device):
            before = torch.cuda.current_stream()
            self._stream.wait_stream(before)
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.stream(self._stream):
                    read()
                with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                    logits = read()
            finally:
                torch.cuda.set_stream(before)  # a capture that fails leaves its own in place
                before.wait_stream(self._stream)
            self._graphs.append(graph)

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay


def cuda_graphs(device: torch.device) -> Capture | None:
    """What captures the passes of a new era; None while all streams are taken."""
    try:
        stream = _free_streams(device).pop()
    except IndexError:
        return None
    return CudaGraphs(device, stream).capture


@cache
def _free_streams(device: torch.device) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(STREAMS)]


def _retire(graphs: list[torch.cuda.CUDAGraph], stream: torch.cuda.Stream, free: list[torch.cuda.Stream]) -> None:
    for graph in graphs:
        graph.reset()
    free.append(stream)
