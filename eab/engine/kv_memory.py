"""The KV memory of many runs: what each run needs, and which runs continue when memory is full.

A run with a tree cache, or with its model's own memory, needs what its tensors hold and what its
next pass may add. Any other cache, and that of a draft model, counts at its largest size from the
start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from eab.config import AUTO, BranchingConfig
from eab.engine.build import encode
from eab.engine.request import Request
from eab.models.base import LanguageModel


class HoldsRows(Protocol):
    """A run with KV rows."""

    @property
    def kv_held(self) -> int:
        """Bytes that the run holds now."""
        ...

    @property
    def kv_next(self) -> int:
        """Bytes that the run may hold after its next pass."""
        ...

    def preempt(self) -> None:
        """Free what can be recomputed."""
        ...


Run = TypeVar("Run", bound=HoldsRows)


def runs_that_fit(runs: Sequence[Run], limit: int) -> list[Run]:
    """Pause runs, the last first, and free their rows if that is not enough, until at most `limit`
    bytes are needed. Returns the runs that continue.

    The first run always continues; its own `kv_limit_mib` bounds it.
    """
    going = list(runs)
    total = sum(run.kv_next for run in runs)
    while total > limit and len(going) > 1:
        last = going.pop()
        total += last.kv_held - last.kv_next
        if total > limit:
            total -= last.kv_held
            last.preempt()
            total += last.kv_held
    return going


@dataclass(frozen=True, slots=True)
class KVNeed:
    """Bytes that a run needs."""

    first: int  # at the start: for the prompt and one step, or all steps if the settings say so
    fixed: int  # of these, for caches whose rows are never freed, at their largest


def kv_need(model: LanguageModel, draft: LanguageModel | None, request: Request) -> KVNeed:
    """The bytes that a run needs, from its settings."""
    config, prompt = request.config, len(encode(model, request))
    limit = config.kv_limit_mib * 2**20
    freed = config.cache == "tree"
    models = [model] * (not freed) + [draft] * (draft is not None and config.drafter == "model")
    fixed = sum(min(_most(llm, config, prompt), limit) for llm in models if llm is not None)
    at_once = config.r != AUTO and config.r >= config.max_new_tokens
    first = _bytes(model, config, prompt, config.max_new_tokens if at_once else 1)
    return KVNeed(fixed + (min(first, limit) if freed else 0), fixed)


def _most(model: LanguageModel, config: BranchingConfig, prompt: int) -> int:
    """Bytes that a cache holds at its largest."""
    return _bytes(model, config, prompt, config.max_new_tokens)


def _bytes(model: LanguageModel, config: BranchingConfig, prompt: int, steps: int) -> int:
    """Bytes that a cache holds after this many steps of all paths."""
    shape = model.kv_shape
    has_rows = shape.own is None or bool(shape.own.shared_layers)
    shared = config.cache in ("tree", "paged", "concat-cow") and has_rows
    rows = prompt * (1 if shared else config.max_paths) + config.max_paths * steps
    return rows * shape.row_bytes + config.max_paths * shape.state_bytes
