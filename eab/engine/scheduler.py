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
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from eab.engine.caches.prefix_cache import PrefixCache, Prefixes
from eab.engine.fairness import (
    FairQueue,
    FirstComeFirstServed,
    TokensServed,
    runs_that_fit,
    within_shares,
)
from eab.engine.forward_pass import Part, run_pass
from eab.engine.generation import MIN_PREFILL_CHUNK, PREFILL_CHUNK
from eab.engine.handle import Handle
from eab.engine.models.base import LanguageModel
from eab.engine.models.machine import free_memory
from eab.engine.request import Request

TOKEN_BUDGET: Final = 512  # per pass; enough to keep a CPU's matrix products efficient
MAX_RUNNING: Final = 32
KV_LIMIT_MIB: Final = 8192  # of all running runs together
GPU_SHARE: Final = 0.8  # of the free memory of a GPU; activations need the rest


class Scheduler:
    """Serves the runs of one model. `submit` may be called from any thread, `step` from one.

    Args:
        rule: Which runs start, and keep their memory. Servers give `NewcomersFirst`.
        token_budget: The most tokens in a pass. A run with more paths is served alone. Draft
            tokens are not counted.
        kv_limit_mib: KV memory of all runs, in MiB. A run waits while there is no room for its
            prompt. When memory runs short, the last run by `rule` pauses; if that is not enough,
            its rows are freed, and recomputed when there is room. The oldest run always continues;
            its own `kv_limit_mib` bounds it. On a GPU the limit is at most four fifths of the
            memory that is free when the scheduler is created.
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
        rule: FirstComeFirstServed | None = None,
        prefixes: PrefixCache | None = None,
    ) -> None:
        self.prefixes, self._rule = prefixes, rule or FirstComeFirstServed()
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
        self._awaited = 0  # consecutive passes in which some run had no new token yet

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

    def step(self) -> list[Handle]:
        """Do one shared forward pass: admit, choose, pass, take. Returns the runs that were served,
        started or ended.
        """
        changed = self.begin()
        parts = self._choose()
        if parts:
            run_pass(self.model, list(parts.values()))
        self._take(parts)
        return list(dict.fromkeys([*changed, *parts]))

    def close(self) -> None:
        """Drop all runs."""
        for handle in (*self._running, *self._queue.entries):
            handle.drop()
        self._running = []

    def begin(self) -> list[Handle]:
        """End stopped runs, and start waiting ones if there is room; returns both. A step does this
        first.
        """
        changed = self._end_stopped()
        while (handle := self._next_with_room()) is not None:
            self._served.begin(handle.owner, {running.owner for running in self._running})
            handle.start()
            self._keep_running([*self._running, handle])
            changed.append(handle)
        return changed

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

    def _next_with_room(self) -> Handle | None:
        slots = self.max_running - len(self._running)
        with self._lock:
            for handle, staying in self._rule.next_to_start(self.waiting, self._running, slots):
                if not self._running or self._has_room(handle, staying):
                    return self._queue.take(handle)
        return None

    def _has_room(self, handle: Handle, staying: Sequence[Handle]) -> bool:
        try:
            first = handle.kv_need.first
        except Exception:
            return True  # the run itself reports why it cannot start
        needed = sum(run.kv_next for run in staying) + first
        self._make_room(needed)
        return needed <= self._kv_room

    def _choose(self) -> dict[Handle, Part]:
        """The runs that the next pass serves: first those that decode, then chunks of prompts, the
        shortest first, so that it does not wait for the chunks of long ones.
        """
        self._make_room(sum(handle.kv_next for handle in self._running))
        self._fitting = runs_that_fit(self._rule.memory_order(self._running), self._kv_room)
        order = sorted(self._fitting, key=lambda run: (self._served.to(run.owner), run.tokens))
        prompts = [handle for handle in order if handle.generation.prefilling]
        prompts.sort(key=lambda handle: handle.generation.pending_tokens)
        decoding = [handle for handle in order if handle not in prompts]
        reserved = 0  # for prompts; else many decoding paths would stall them
        if prompts:
            first = prompts[0].generation.pending_tokens
            reserved = max(MIN_PREFILL_CHUNK, min(first, self.token_budget // 4))
        alone = len({handle.owner for handle in order}) == 1
        chosen, left = self._choose_decoding(decoding, self.token_budget - reserved, alone)
        return self._add_prompts(chosen, prompts, max(left, 0) + reserved)

    def _choose_decoding(
        self, decoding: Sequence[Handle], left: int, alone: bool
    ) -> tuple[dict[Handle, Part], int]:
        """The decoding runs of the next pass, and what they leave of its tokens. A run that has
        more than that is served alone.
        """
        self._awaited = self._awaited + 1 if any(run.starting for run in self._fitting) else 0
        share, begun = self._rule.decoding_tokens(self.token_budget, self._awaited), 0
        chosen: dict[Handle, Part] = {}
        for handle in within_shares([run for run in decoding if run.starting or share], alone):
            tokens = handle.generation.pending_tokens
            in_share = handle.starting or not begun or begun + tokens <= share
            if (in_share and tokens <= left) or not chosen:
                chosen[handle] = Part(handle.generation, is_abandoned=handle.is_stopping)
                left -= tokens
                begun += 0 if handle.starting else tokens
        return chosen, left

    def _add_prompts(
        self, chosen: dict[Handle, Part], prompts: Sequence[Handle], left: int
    ) -> dict[Handle, Part]:
        """Add chunks of prompts, of at most `left` tokens together."""
        for handle in prompts:
            if handle.waits_for([*chosen]):
                continue
            handle.generation.reuse_prefix()
            pending = handle.generation.pending_tokens
            tokens = min(left, PREFILL_CHUNK, pending)
            if tokens == pending or tokens >= MIN_PREFILL_CHUNK or not chosen:
                chosen[handle] = Part(handle.generation, tokens, handle.is_stopping)
                left -= tokens
        return chosen

    def _take(self, parts: Mapping[Handle, Part]) -> None:
        """Let the runs continue after a pass."""
        for handle, part in parts.items():
            handle.take(part)
            self._served.add(handle.owner, part.tokens)
        self._keep_running(self._running)

    def _keep_running(self, handles: Sequence[Handle]) -> None:
        self._running = [handle for handle in handles if not handle.ended]
        self._fitting = [handle for handle in self._fitting if not handle.ended]
