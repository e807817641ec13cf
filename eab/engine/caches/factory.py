"""Makes caches by name."""

from typing import assert_never

from eab.config import AllocationStep, CacheName
from eab.engine.caches.base import KVCache
from eab.engine.caches.baselines import ConcatCowCache, DeepCopyCache, Recompute
from eab.engine.caches.kv_pool import KVPool
from eab.engine.caches.ledger import BLOCK_SIZE
from eab.engine.caches.own import HybridCache, OwnCache
from eab.engine.caches.per_path import PagedCache
from eab.engine.caches.prefix_cache import PrefixedTreeCache, Prefixes, can_reuse
from eab.engine.caches.server import ServerCache
from eab.engine.caches.shape import KVShape
from eab.engine.caches.tree import TreeCache
from eab.errors import ConfigError


def make_cache(
    name: CacheName,
    shape: KVShape,
    r: AllocationStep,
    byte_limit: int,
    padded: bool = False,
    top_k: int = 1,
    prefixes: Prefixes | None = None,
    block_size: int = BLOCK_SIZE,
    pool: KVPool | None = None,
) -> KVCache:
    """Make an empty cache for one run.

    Args:
        name: The cache. A server always has its own. For a model that keeps its memory in its own
            way, `tree` means that memory, and the only other choice is `recompute`.
        r: Growth step of the tree cache; the other caches never allocate ahead.
        padded: Whether attention visits the spare rows of the tree cache; the other caches have
            none.
        top_k: How many of the most likely tokens a server returns.
        prefixes: The part of the prefix cache that a tree cache may use; None to use none.
        block_size: Rows of a block of the paged cache.
        pool: Where a tree cache takes its tensors from.

    Raises:
        ConfigError: The model cannot have this cache.
    """
    if shape.blocks is not None:
        return ServerCache(shape, shape.blocks, byte_limit, top_k)
    if shape.own is not None:
        if name not in ("tree", "recompute"):
            memory = "keeps its memory in its own way, with a copy for each path"
            if shape.own.shared_layers:
                memory = "keeps states in addition to KV rows, with a copy for each path"
            raise ConfigError(
                f"the cache is {name!r}, but this model {memory}; choose tree (here, the "
                "memory of the model) or recompute"
            )
        if name == "tree" and shape.own.shared_layers:
            return HybridCache(shape, r, byte_limit)
        return OwnCache(shape, byte_limit, keeps=name == "tree")
    match name:
        case "tree":
            if prefixes is None or not can_reuse(shape):
                return TreeCache(shape, r, byte_limit, padded, pool)
            return PrefixedTreeCache(shape, r, byte_limit, padded, prefixes, pool)
        case "concat-cow":
            return ConcatCowCache(shape, byte_limit)
        case "paged":
            return PagedCache(shape, byte_limit, block_size)
        case "deep-copy":
            return DeepCopyCache(shape, byte_limit)
        case "recompute":
            return Recompute(shape, byte_limit)
        case _:
            assert_never(name)
