"""Continuous batching: one scheduler serves all runs of a model, several in each forward pass.

    scheduler = Scheduler(model)
    handles = [scheduler.submit(request) for request in requests]
    for event in handles[0]: ...        # iterating serves all of them

A run can join at any step, and leaves at the step that ends it (Orca's iteration-level scheduling).
A pass has a token budget: the tokens of decoding runs come first, then chunks of waiting prompts,
so a long prompt stalls nobody (chunked prefill). Either all paths of a run are in a pass, or none.
If not all runs fit into the budget, those of the owner that was served the fewest tokens go first
(virtual token counter, arXiv 2401.00588). An owner with very many paths does not make every pass
long for the others: its runs alternate. The schedule changes no decision of a run.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from eab.caches.prefix_cache import PrefixCache
from eab.caches.prefixed_tree import Prefixes
from eab.engine.fair_queue import FairQueue
from eab.engine.forward_pass import Part, run_pass
from eab.engine.generation import MIN_PREFILL_CHUNK, PREFILL_CHUNK
from eab.engine.handle import Handle
from eab.engine.kv_memory import runs_that_fit
from eab.engine.owner_shares import TokensServed, within_shares
from eab.engine.request import Request
from eab.models.base import LanguageModel
from eab.models.machine import free_memory

TOKEN_BUDGET: Final = 512  # per pass; enough to keep a CPU's matrix products efficient
# While some run has no token yet, runs that have some get this many, in every eighth pass only.
TOKENS_WHILE_STARTING: Final = 64
STARTING_PERIOD: Final = 8
MAX_RUNNING: Final = 32
KV_LIMIT_MIB: Final = 8192  # of all running runs together
GPU_SHARE: Final = 0.8  # of the free memory of a GPU; activations need the rest


class Scheduler:
    """Serves the runs of one model. `submit` may be called from any thread, `step` from one.

    Args:
        newcomers_first: Whether an owner without a running run gets one beyond `max_running`, runs
            that were served long make room for the others, and the prompt with the fewest tokens
            left goes first. Servers set this.
        token_budget: The most tokens in a pass. A run with more paths is served alone. Draft
            tokens are not counted.
        kv_limit_mib: KV memory of all runs, in MiB. A run waits while there is no room for its
            prompt. When memory runs short, the youngest run pauses, or one that was served long if
            newcomers go first; if that is not enough, its rows are freed, and recomputed when there
            is room. The oldest run always continues; its own `kv_limit_mib` bounds it. On a GPU the
            limit is at most four fifths of the memory that is free when the scheduler is created.
        kv_elsewhere: Returns the bytes of this limit that runs of other schedulers hold right now.
        prefixes: The cache in which runs find K and V of common prefixes, and to which they add
            theirs. It counts as KV memory; when runs need the room, it evicts segments.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        max_running: int = MAX_RUNNING,
        token_budget: int = TOKEN_BUDGET,
        kv_limit_mib: float = KV_LIMIT_MIB,
        kv_elsewhere: Callable[[], int] = lambda: 0,
        newcomers_first: bool = False,
        prefixes: PrefixCache | None = None,
    ) -> None:
        self.prefixes = prefixes
        self._newcomers_first = newcomers_first
        self._kv_elsewhere = kv_elsewhere
        self.model, self.max_running, self.token_budget = model, max_running, token_budget
        self._kv_limit = int(kv_limit_mib * 2**20)
        if (device := model.kv_shape.device).type == "cuda":
            self._kv_limit = min(self._kv_limit, int(GPU_SHARE * free_memory(device)))
        self._lock = threading.Lock()  # held to change the queue
        self._queue: FairQueue[Handle] = FairQueue()
        self._running: list[Handle] = []
        self._fitting: list[Handle] = []  # the running runs that are not paused
        self._served = TokensServed()
        self._passes_awaited = 0  # consecutive passes in which some run had no token yet

    @property
    def waiting(self) -> list[Handle]:
        """The runs that have not started, the next to start first."""
        return self._queue.entries

    @property
    def running(self) -> list[Handle]:
        """The runs that have started and not ended, the oldest first."""
        return [*self._running]

    @property
    def paused(self) -> list[Handle]:
        """The running runs that the last pass left out, because KV memory was short."""
        return [handle for handle in self._running if handle not in self._fitting]

    @property
    def kv_held(self) -> int:
        """Bytes of KV memory that the runs hold."""
        return sum(handle.kv_held for handle in self._running)

    @property
    def _kv_room(self) -> int:
        """Bytes that the runs may hold."""
        return self._kv_limit - self._kv_elsewhere() - self.prefix_bytes

    @property
    def prefix_bytes(self) -> int:
        """Bytes that the prefix cache holds."""
        return 0 if self.prefixes is None else self.prefixes.bytes_held

    def _make_room(self, needed: int) -> None:
        """Evict segments of the prefix cache if the runs need their memory."""
        if self.prefixes is not None and needed > self._kv_room:
            self.prefixes.evict(needed - self._kv_room)

    @property
    def busy(self) -> bool:
        """Whether any runs are running or waiting."""
        return bool(self._running or self._queue.entries)

    def submit(
        self,
        request: Request,
        *,
        owner: str = "",
        draft: LanguageModel | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        scope: str = "",
    ) -> Handle:
        """Queue a run. It starts at the next step with room for it.

        Args:
            owner: Who requests the run; the scheduler is fair between owners.
            scope: The scope in which the run shares rows of the prefix cache.
            should_stop: Whether to end the run. It is called before each pass and, during a pass,
                before each layer; the pass is then left, and repeated for the other runs.
        """
        prefixes = None if self.prefixes is None else Prefixes(self.prefixes, scope)
        handle = Handle(self, request, owner, draft, should_stop, prefixes)
        with self._lock:
            self._queue.add(handle)
        return handle

    def begin(self) -> list[Handle]:
        """End stopped runs, and start waiting ones if there is room; returns both. A step does this
        first.
        """
        return self._end_stopped() + self._begin_waiting()

    def step(self) -> list[Handle]:
        """Do one shared forward pass; returns the runs that were served, started or ended."""
        changed = self.begin()
        self._make_room(sum(handle.kv_next for handle in self._running))
        self._fitting = runs_that_fit(self._by_priority(), self._kv_room)
        parts = self._schedule()
        if parts:
            run_pass(self.model, list(parts.values()))
        for handle, part in parts.items():
            handle.take(part)
            self._served.add(handle.owner, part.tokens)
        self._keep_running(self._running)
        return list(dict.fromkeys([*changed, *parts]))

    def close(self) -> None:
        """Drop all runs."""
        for handle in (*self._running, *self._queue.entries):
            handle.drop()
        self._running = []

    def _end_stopped(self) -> list[Handle]:
        with self._lock:
            waiting = [handle for handle in self._queue.entries if handle.is_stopping()]
            for handle in waiting:
                self._queue.remove(handle)
        stopped = [*waiting, *(handle for handle in self._running if handle.is_stopping())]
        for handle in stopped:
            handle.end_stopped()
        self._keep_running(self._running)
        return stopped

    def _begin_waiting(self) -> list[Handle]:
        """Start runs in their order while there is room."""
        begun = []
        while (handle := self._next_with_room()) is not None:
            self._served.begin(handle.owner, {running.owner for running in self._running})
            handle.start()
            self._keep_running([*self._running, handle])
            self._fitting.append(handle)
            begun.append(handle)
        return begun

    def _next_with_room(self) -> Handle | None:
        with self._lock:
            for handle in self._next_in_line():
                if not self._running or self._has_room(handle):
                    return self._queue.take(handle)
        return None

    def _next_in_line(self) -> list[Handle]:
        """The runs that may start next if there is room: the first that waits, if a slot is free,
        and the first of a newcomer, who need not wait until runs of others have ended.
        """
        waiting = self._queue.entries
        next_ones = waiting[:1] if len(self._running) < self.max_running else []
        if self._newcomers_first:
            next_ones += [handle for handle in waiting if self._is_newcomer(handle)][:1]
        return next_ones

    def _is_newcomer(self, handle: Handle) -> bool:
        return all(running.owner != handle.owner for running in self._running)

    def _has_room(self, handle: Handle) -> bool:
        try:
            first = handle.kv_need.first
        except Exception:
            return True  # the run itself reports why it cannot start
        staying = self._running
        if self._newcomers_first and self._is_newcomer(handle):
            oldest, *others = staying
            staying = [oldest, *(run for run in others if not run.slices)]
        elif self.paused:
            return False
        needed = sum(run.kv_next for run in staying) + first
        self._make_room(needed)
        return needed <= self._kv_room

    def _by_priority(self) -> list[Handle]:
        """The running runs, the last to pause first: the oldest, so that one always finishes, then
        those that were served least. Slices double, so runs seldom change places.
        """
        if not self._newcomers_first or not self._running:
            return self._running
        oldest, *others = self._running
        return [oldest, *sorted(others, key=lambda handle: handle.slices)]

    def _schedule(self) -> dict[Handle, Part]:
        """The runs that the next pass serves: first those that decode, then chunks of prompts."""
        order = sorted(self._fitting, key=lambda run: (self._served.to(run.owner), run.tokens))
        prompts = [handle for handle in order if handle.generation.prefilling]
        if self._newcomers_first:  # else short prompts would wait for chunks of long ones
            prompts.sort(key=lambda handle: handle.generation.pending_tokens)
        left, reserved = self.token_budget, self._reserved(prompts)
        chosen: dict[Handle, Part] = {}
        share, begun = self._tokens_for_decoding(order), 0
        decoding = [run for run in order if run not in prompts and (run.starting or share)]
        owners = {handle.owner for handle in order}
        for handle in within_shares(decoding, alone=len(owners) == 1):
            tokens = handle.generation.pending_tokens
            in_share = handle.starting or not begun or begun + tokens <= share
            if (in_share and tokens + reserved <= left) or not chosen:
                chosen[handle] = Part(handle.generation, is_abandoned=handle.is_stopping)
                left -= tokens
                begun += 0 if handle.starting else tokens
        left = max(left, reserved)
        for handle in prompts:
            if handle.waits_for([*chosen]):
                continue
            handle.generation.reuse_prefix()
            tokens = min(left, PREFILL_CHUNK, handle.generation.pending_tokens)
            whole = tokens == handle.generation.pending_tokens
            if whole or tokens >= MIN_PREFILL_CHUNK or not chosen:
                chosen[handle] = Part(handle.generation, tokens, handle.is_stopping)
                left -= tokens
        return chosen

    def _tokens_for_decoding(self, fitting: Sequence[Handle]) -> int:
        """Tokens per pass for runs that already have tokens. While another run has none, most
        passes leave them out to stay short, because the probe of a threshold takes many passes. A
        run with more paths than that is served alone.
        """
        if not (self._newcomers_first and any(handle.starting for handle in fitting)):
            self._passes_awaited = 0
            return self.token_budget
        self._passes_awaited += 1
        return 0 if self._passes_awaited % STARTING_PERIOD else TOKENS_WHILE_STARTING

    def _reserved(self, prompts: Sequence[Handle]) -> int:
        """Tokens per pass reserved for prompts; else many decoding paths would stall them."""
        if not prompts:
            return 0
        if not self._newcomers_first:
            return MIN_PREFILL_CHUNK
        first = prompts[0].generation.pending_tokens
        return max(MIN_PREFILL_CHUNK, min(first, self.token_budget // 4))

    def _keep_running(self, handles: Sequence[Handle]) -> None:
        self._running = [handle for handle in handles if not handle.ended]
        self._fitting = [handle for handle in self._fitting if not handle.ended]
