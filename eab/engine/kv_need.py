"""The KV memory that a run needs, known from its settings before it starts."""

from dataclasses import dataclass

from eab.config import AUTO, BranchingConfig
from eab.engine.build import encode
from eab.engine.models.base import LanguageModel
from eab.engine.request import Request


@dataclass(frozen=True, slots=True)
class KVNeed:
    """Bytes of KV memory that a run needs."""

    first: int  # at the start: for the prompt and one step, or all steps if the settings say so
    fixed: int  # of these, for caches whose rows are never freed, at their largest


def kv_need(model: LanguageModel, draft: LanguageModel | None, request: Request) -> KVNeed:
    """The bytes that a run needs, from its settings. Only a tree cache can be freed; any other
    cache, a model's own memory, and the cache of a draft model, counts at its largest from the
    start.
    """
    config, prompt = request.config, len(encode(model, request))
    limit, steps = config.kv_limit_mib * 2**20, config.max_new_tokens
    freed = config.cache == "tree" and model.kv_shape.own is None
    models = [model] * (not freed) + [draft] * (draft is not None and config.drafter == "model")
    fixed = sum(min(_bytes(llm, config, prompt, steps), limit) for llm in models if llm is not None)
    at_once = config.r != AUTO and config.r >= steps
    first = _bytes(model, config, prompt, steps if at_once else 1)
    return KVNeed(fixed + (min(first, limit) if freed else 0), fixed)


def _bytes(model: LanguageModel, config: BranchingConfig, prompt: int, steps: int) -> int:
    """Bytes that a cache holds after this many steps of all paths."""
    shape = model.kv_shape
    has_rows = shape.own is None or bool(shape.own.shared_layers)
    shared = config.cache in ("tree", "paged", "concat-cow") and has_rows
    rows = prompt * (1 if shared else config.max_paths) + config.max_paths * steps
    held = rows * shape.row_bytes + config.max_paths * shape.state_bytes
    # A memory of its own is copied before it reads draft tokens.
    return 2 * held if shape.own is not None and config.drafter != "none" else held
