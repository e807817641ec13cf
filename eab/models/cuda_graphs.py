"""Decode passes captured as CUDA graphs: a small model's pass takes a GPU less time than the
launching of its kernels.

A pass in a frame (eab.caches.static_buffers) reads and writes the same memory until its cache
grows. So what the model does with it is captured once and replayed as a whole on the next pass's
numbers.
"""

import logging
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

import torch
from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.caches.static_buffers import BufferEpoch, StaticBuffers

Read: TypeAlias = Callable[[ForwardBatch], Tensor]  # one forward pass -> logits
Replay: TypeAlias = Callable[
    [], Tensor
]  # the same on what the memory holds now -> the same tensor each time
Capture: TypeAlias = Callable[[Callable[[], Tensor]], Replay]
STREAMS: Final = 16  # on each device: caches whose passes are captured at a time
MOST_FAILURES: Final = 3  # of a model, before nothing of it is captured any more
TOLERANCE: Final = {
    torch.float64: 1e-9,
    torch.float32: 1e-3,
}  # of a replay's logits; wider for the narrower types


class CudaGraphRunner:
    """Reads the passes of one model; those in frames are captured.

    captures: what captures the passes of one era, or None if it cannot now. check: whether passes
    read here say what the plain model says; nothing of a run is captured until replays on new
    numbers did. Each first replay must also say what its pass said. What fails is not captured, and
    the log says why.
    """

    def __init__(self, captures: Callable[[], Capture | None], check: Callable[[], bool]) -> None:
        self._new_capture, self._check = captures, check
        self._captures: weakref.WeakKeyDictionary[BufferEpoch, Capture | None] = (
            weakref.WeakKeyDictionary()
        )
        self._replays: weakref.WeakKeyDictionary[StaticBuffers, Replay] = (
            weakref.WeakKeyDictionary()
        )
        self._checked, self._replayed, self._failures = False, 0, 0

    def read(self, one: ForwardBatch, read: Read) -> Tensor:
        """One forward pass -> logits (K, V), which later passes do not overwrite."""
        frame = one.frame
        if frame is None:
            return read(one)
        if frame in self._replays:
            self._replayed += 1
            return self._replays[frame]().clone()
        logits = read(one)
        try:
            capture = self._capture_for(frame.era)
            if capture is not None:
                self._replays[frame] = _agreeing(capture(lambda: read(one)), logits)
        except (
            Exception
        ) as error:  # the model's code meets what it never met, or the GPU's memory is full
            self._forget(frame.era)
            self._failed(str(error))
        return logits

    def _capture_for(self, era: BufferEpoch) -> Capture | None:
        if self._failures >= MOST_FAILURES:
            return None
        if era not in self._captures:
            self._captures[era] = self._new_capture() if self._proven() else None
        return self._captures[era]

    def _proven(self) -> bool:
        if self._checked:
            return True
        self._checked, before, agrees = True, self._replayed, False  # checking captures, too
        try:
            agrees = self._check() and self._replayed > before
        finally:
            self._checked = agrees
        if not agrees:
            self._failed("replays say otherwise than the model, or there were none")
        return agrees

    def _forget(self, era: BufferEpoch) -> None:
        self._captures[era] = None  # its graphs go with what captured them
        for frame in [frame for frame in self._replays if frame.era is era]:
            del self._replays[frame]

    def _failed(self, reason: str) -> None:
        self._failures += 1
        logging.getLogger(__name__).warning("passes are not captured as CUDA graphs: %s", reason)


def _agreeing(replay: Replay, logits: Tensor) -> Replay:
    """The replay, if it says the same. RuntimeError if not."""
    if not torch.allclose(replay(), logits, rtol=0.0, atol=_tolerance(logits), equal_nan=True):
        raise RuntimeError("a replay says otherwise than its pass")
    return replay


def _tolerance(logits: Tensor) -> float:
    largest = logits.abs().nan_to_num(posinf=0.0).max().item()
    return TOLERANCE.get(logits.dtype, 0.1) * max(1.0, largest)


class GraphCapture:
    """Captures the passes of one era on a stream and in a memory pool of their own.

    They are reset together, before the stream is used again: with the first graph of a stream that
    goes, PyTorch frees the cuBLAS workspace that the others of the stream still use
    (github.com/pytorch/pytorch/issues/193402).
    """

    _one_at_a_time = threading.Lock()

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        self._device, self._stream = device, stream
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []
        retire = weakref.finalize(self, _retire, self._graphs, stream, _free_streams(device))
        retire.atexit = False  # runs may still be replaying then

    def capture(self, read: Callable[[], Tensor]) -> Replay:
        """Read once on the stream, which sets up its libraries; then capture. RuntimeError if it
        cannot be captured.

        Not by torch.cuda.graph, which empties the allocator's caches before each capture.
        """
        graph = torch.cuda.CUDAGraph()
        with self._one_at_a_time, torch.cuda.device(self._device):
            before = torch.cuda.current_stream()
            self._stream.wait_stream(before)
            try:
                with torch.cuda.stream(self._stream):
                    read()
                    graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                    try:
                        logits = read()
                    finally:
                        graph.capture_end()
            finally:
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
    return GraphCapture(device, stream).capture


@cache
def _free_streams(device: torch.device) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(STREAMS)]


def _retire(
    graphs: list[torch.cuda.CUDAGraph], stream: torch.cuda.Stream, free: list[torch.cuda.Stream]
) -> None:
    for graph in graphs:
        graph.reset()
    free.append(stream)
