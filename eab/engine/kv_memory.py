"""The KV memory of many runs: what a run takes, and who goes on when memory runs short.

A run with a tree cache takes what its tensors hold, and what its next pass may add. Another cache,
or that of a draft model, counts from the start with the most that it may hold.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from eab.config import AUTO
from eab.engine.build import encode
from eab.engine.request import Request
from eab.models.base import LanguageModel


class HoldsRows(Protocol):
    """A run with KV rows."""

    @property
    def kv_held(self) -> int:
        """Bytes that it holds now."""
        ...

    @property
    def kv_next(self) -> int:
        """Bytes that it may hold after its next pass."""
        ...

    def preempt(self) -> None:
        """Free what can be computed again."""
        ...


Run = TypeVar("Run", bound=HoldsRows)


def those_that_fit(runs: Sequence[Run], limit: int) -> list[Run]:
    """Pause the youngest runs, and free their rows, as far as necessary.

    Args:
        runs: The oldest first. It always goes on; its own `kv_limit_mib` bounds it.
        limit: Bytes that all of them may hold.

    Returns:
        The runs that go on.
    """
    going = list(runs)
    if len(going) == 1:
        return going
    total = sum(run.kv_next for run in runs)
    while total > limit and len(going) > 1:
        youngest = going.pop()
        total += youngest.kv_held - youngest.kv_next
        if total > limit:
            total -= youngest.kv_held
            youngest.preempt()
            total += youngest.kv_held
    return going


def fixed_bytes(model: LanguageModel, draft: LanguageModel | None, request: Request) -> int:
    """The most that the caches of a run may hold whose rows are never freed: all but a tree cache.

    Raises:
        PromptError: See `eab.engine.build.encode`.
    """
    config, prompt = request.config, len(encode(model, request))
    models = [] if draft is None or config.drafter != "model" else [draft]
    if config.cache != "tree":
        models.append(model)
    shared = config.cache in ("tree", "concat-cow")
    rows = prompt * (1 if shared else config.max_paths) + config.max_paths * config.max_new_tokens
    limit = config.kv_limit_mib * 2**20
    return sum(min(rows * one.kv_shape.row_bytes, limit) for one in models)


def first_bytes(model: LanguageModel, draft: LanguageModel | None, request: Request) -> int:
    """What a run takes when it begins: its prompt and one step, or all if its settings say so.

    Raises:
        PromptError: See `eab.engine.build.encode`.
    """
    config = request.config
    fixed = fixed_bytes(model, draft, request)
    if config.cache != "tree":
        return fixed
    at_once = config.r != AUTO and config.r >= config.max_new_tokens
    rows = config.max_paths * (config.max_new_tokens if at_once else 1)
    own = (len(encode(model, request)) + rows) * model.kv_shape.row_bytes
    return fixed + min(own, config.kv_limit_mib * 2**20)
