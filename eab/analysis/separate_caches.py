"""The bytes that the live paths of a run would hold with separate KV caches, from its events.

A separate cache is a tree cache with a single path: it holds the prompt and grows by the same r, so
reserved rows count on both sides. The other caches never reserve rows. In a layer that reads only
the last tokens, a separate cache keeps only the rows of those tokens, as transformers does.
"""

from collections.abc import Sequence
from functools import lru_cache

from eab.analysis.kv_demand import Demand, StepRows
from eab.config import AllocationStep
from eab.events import KVUsage, ModelCard, RunStarted


def separate_bytes(started: RunStarted, kv: KVUsage) -> int:
    """Bytes that separate caches would hold (computed), one cache for each live path of `kv`."""
    config, prompt = started.config, len(started.prompt_tokens)
    own = sum(kv.own_bytes)
    if own and not started.model.shares_rows:
        return own
    lengths = path_lengths(kv)
    if kv.block_size:
        lengths = [-(-length // kv.block_size) * kv.block_size for length in lengths]
    elif config.cache == "tree":
        lengths = [_held(prompt, length, config.max_new_tokens, config.r) for length in lengths]
    return bytes_of_texts(started.model, lengths) + own


def bytes_of_texts(card: ModelCard, lengths: Sequence[int]) -> int:
    """Bytes of the rows that texts of these lengths need, each in a cache of its own."""
    everywhere = card.row_bytes - sum(row_bytes for _, row_bytes in card.window_rows)
    in_windows = (
        row_bytes * sum(min(length, tokens) for length in lengths)
        for tokens, row_bytes in card.window_rows
    )
    return max(0, everywhere) * sum(lengths) + sum(in_windows)


def path_lengths(kv: KVUsage) -> list[int]:
    """Tokens of each live path; if a cache keeps no rows, their known sum is divided equally."""
    lengths = [path.shared + path.private for path in kv.paths]
    if any(lengths) or not lengths:
        return lengths
    each, rest = divmod(kv.rows_independent, len(lengths))
    return [each + (index < rest) for index in range(len(lengths))]


def _held(prompt: int, length: int, max_new_tokens: int, r: AllocationStep) -> int:
    held, new = _held_by_new_tokens(prompt, max_new_tokens, r), length - prompt
    return held[new] if 0 <= new < len(held) else length


@lru_cache(maxsize=64)
def _held_by_new_tokens(prompt: int, max_new_tokens: int, r: AllocationStep) -> Sequence[int]:
    """Rows that the cache of a single path holds after 0, 1, 2 ... new tokens."""
    needs = tuple(StepRows(step, prompt + step, 1) for step in range(max_new_tokens))
    steps = Demand(needs, max_new_tokens, 1, 0).at(r)
    return tuple(step.held for step in steps)
