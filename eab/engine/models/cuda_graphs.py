"""CUDA graphs for decode batches: a GPU runs a small pass faster than the CPU launches its kernels.

A batch in static buffers (eab.engine.caches.kv_pool) reads and writes the same memory until its
cache grows. So its forward pass is captured once as a CUDA graph, which is then replayed as a whole
with the values of the next batch, also of a later run (eab.engine.caches.kv_pool).
"""

import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.kv_pool import BufferEpoch, StaticBuffers

Forward: TypeAlias = Callable[[ForwardBatch], Tensor]  # one forward pass -> logits
# The same forward pass on the current content of the buffers; always returns the same tensor
Replay: TypeAlias = Callable[[], Tensor]
Capture: TypeAlias = Callable[[Callable[[], Tensor]], Replay]
STREAMS: Final = 16  # per device: the number of caches that can have CUDA graphs at the same time
MAX_FAILURES: Final = 3  # of a model, after which no more graphs are captured
# Tolerance for replayed logits, relative to the largest one; narrower dtypes get a wider one.
TOLERANCE: Final = {torch.float64: 1e-9, torch.float32: 1e-3}


class CudaGraphRunner:
    """Runs the batches of one model, capturing and replaying those in static buffers.

    No graph of a run is captured until replays on new values have been verified against the
    uncaptured model. The first replay of each graph must also agree with its own forward pass.
    After a failure, the forward pass runs uncaptured, and the reason is logged.
    """

    def __init__(
        self, new_capture: Callable[[], Capture | None], verify: Callable[[], bool]
    ) -> None:
        """Make a runner without graphs; `new_capture` returns None while no stream is free."""
        self._new_capture, self._verify = new_capture, verify
        self._captures = WeakKeyDictionary[BufferEpoch, Capture | None]()
        self._replays = WeakKeyDictionary[StaticBuffers, Replay]()
        self._verified, self._replay_count, self._failures = False, 0, 0

    def run(self, batch: ForwardBatch, forward: Forward) -> Tensor:
        """Replay the graph of the batch if there is one; otherwise run the batch, and capture it if
        possible. Return the logits, (K, V), which later forward passes do not overwrite.
        """
        buffers = batch.static_buffers
        if buffers is None:
            return forward(batch)
        if buffers in self._replays:
            self._replay_count += 1
            return self._replays[buffers]().clone()
        logits = forward(batch)
        try:
            capture = self._capture_for(buffers.epoch)
            if capture is not None:
                self._replays[buffers] = _checked(capture(lambda: forward(batch)), logits)
        except Exception as error:  # the model's code cannot be captured, or no GPU memory
            self._discard(buffers.epoch)
            self._note_failure(str(error))
        return logits

    def _capture_for(self, epoch: BufferEpoch) -> Capture | None:
        if self._failures >= MAX_FAILURES:
            return None
        if epoch not in self._captures:
            capture = self._new_capture() if self._is_verified() else None
            if capture is None:
                return None  # a stream may become free later
            self._captures[epoch] = capture
        return self._captures[epoch]

    def _is_verified(self) -> bool:
        if self._verified:
            return True
        # Set during verification, because verification captures graphs, too.
        self._verified, before, agrees = True, self._replay_count, False
        try:
            agrees = self._verify() and self._replay_count > before
        finally:
            self._verified = agrees
        if not agrees:
            self._note_failure("replays disagree with the model, or nothing was replayed")
        return agrees

    def _discard(self, epoch: BufferEpoch) -> None:
        """Discard all graphs of the epoch; they are reset together (see GraphCapture)."""
        self._captures[epoch] = None
        for reference in self._replays.keyrefs():  # another thread may add to them meanwhile
            buffers = reference()
            if buffers is not None and buffers.epoch is epoch:
                del self._replays[buffers]

    def _note_failure(self, reason: str) -> None:
        self._failures += 1
        log = logging.getLogger(__name__)
        log.warning("forward passes are not captured as CUDA graphs: %s", reason)


def _checked(replay: Replay, logits: Tensor) -> Replay:
    """Return the replay if it gives these logits; raise RuntimeError otherwise."""
    if not torch.allclose(replay(), logits, rtol=0.0, atol=_tolerance(logits), equal_nan=True):
        raise RuntimeError("a replay disagrees with its forward pass")
    return replay


def _tolerance(logits: Tensor) -> float:
    largest = logits.abs().nan_to_num(posinf=0.0).max().item()
    return TOLERANCE.get(logits.dtype, 0.1) * max(1.0, largest)


class GraphCapture:
    """Captures the graphs of one buffer epoch, on their own stream and in their own memory pool.

    PyTorch may free a cuBLAS workspace that a graph still uses: when another graph of the stream is
    destroyed, when the thread ends, or when other code captures (github.com/pytorch/pytorch/issues
    193402 and 192061). So each capture starts without one, and the memory pool of the graphs keeps
    the one that is made meanwhile. The graphs are reset together, before the stream is reused.
    """

    _one_at_a_time = threading.Lock()

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        self._device, self._stream = device, stream
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []
        free = _free_streams(device)
        finalizer = weakref.finalize(self, _reset_graphs, self._graphs, stream, free)
        finalizer.atexit = False  # runs may still be replaying at exit

    def capture(self, forward: Callable[[], Tensor]) -> Replay:
        """Run the forward pass once on the stream, which sets up its libraries; then capture it.

        torch.cuda.graph is not used, because it empties the allocator's caches before each capture.
        """
        graph = torch.cuda.CUDAGraph()
        with self._one_at_a_time, torch.cuda.device(self._device):
            before = torch.cuda.current_stream()
            self._stream.wait_stream(before)
            try:
                with torch.cuda.stream(self._stream):
                    forward()
                    torch._C._cuda_clearCublasWorkspaces()
                    graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                    try:
                        logits = forward()
                    except BaseException:
                        # capture_end's own error, an incomplete capture, would hide the reason.
                        with suppress(RuntimeError):
                            graph.capture_end()
                        raise
                    graph.capture_end()
            finally:
                torch._C._cuda_clearCublasWorkspaces()
                before.wait_stream(self._stream)
        self._graphs.append(graph)

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay


def new_graph_capture(device: torch.device) -> Capture | None:
    """A capture function for a new buffer epoch; None while all streams are in use."""
    try:
        stream = _free_streams(device).pop()
    except IndexError:
        return None
    return GraphCapture(device, stream).capture


@cache
def _free_streams(device: torch.device) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(STREAMS)]


def _reset_graphs(
    graphs: list[torch.cuda.CUDAGraph], stream: torch.cuda.Stream, free: list[torch.cuda.Stream]
) -> None:
    for graph in graphs:
        graph.reset()
    free.append(stream)
