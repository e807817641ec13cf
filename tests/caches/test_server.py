"""The books of a KV cache on a server, against hand-written cases."""

import pytest
import torch

from eab.caches.server import UNKNOWN, ServerCache
from eab.caches.shape import KVShape, ServerBlocks
from eab.errors import MemoryLimitError

SHAPE = KVShape(1, 1, 1, torch.float32, torch.device("cpu"))  # 8 bytes per row


def cache_of(size: int, shared: bool, limit: int = 2**20) -> ServerCache:
    return ServerCache(SHAPE, ServerBlocks(size, shared), limit)


def test_full_blocks_are_shared_and_the_last_one_is_private() -> None:
    cache = cache_of(4, shared=True)
    cache.prepare([0], [[1, 2, 3, 4, 5, 6]])
    cache.fork(0, [1, 2, 3])
    usage = cache.usage([1, 2, 3])
    assert (usage.rows_shared, usage.rows_private, usage.rows_spare) == (4, 3 * 2, 3 * 2)
    assert usage.bytes_held == (1 + 3) * 4 * 8
    assert (usage.block_size, usage.bytes_copied, usage.rows_independent) == (4, 0, 18)


def test_slots_share_nothing() -> None:
    cache = cache_of(4, shared=False)
    cache.prepare([0], [[1, 2, 3, 4, 5, 6]])
    cache.fork(0, [1, 2])
    usage = cache.usage([1, 2])
    assert (usage.rows_shared, usage.rows_private, usage.rows_spare) == (0, 12, 4)
    cache.release(1)
    assert cache.usage([2]).bytes_held == 2 * 4 * 8


def test_a_pass_asks_for_whole_texts() -> None:
    cache = cache_of(1, shared=True)
    cache.prepare([0], [[1, 2, 3]])
    cache.fork(0, [1, 2])
    batch = cache.prepare([1, 2], [[4, 5], [6]], [2, 1])
    asked = [(one.path, one.tokens, one.known, one.ahead) for one in cache.questions]
    assert asked == [(1, [1, 2, 3, 4, 5], 2, 0), (2, [1, 2, 3, 6], 1, 0)]
    assert batch.ids.tolist() == [4, 5, 6]
    assert batch.positions.tolist() == [3, 4, 3]
    assert batch.logits_indices.tolist() == [0, 1, 2]


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_tokens_that_the_server_chose_stay_as_far_as_they_are_accepted(accepted: int) -> None:
    cache = cache_of(1, shared=True)
    cache.prepare([0], [[1, 2]])
    cache.prepare([0], [[3, UNKNOWN, UNKNOWN]], [3])
    [question] = cache.questions
    assert (question.known, question.ahead) == (1, 2)
    cache.note_answer([[7, 8]], sent=3, cached=2)
    assert cache.run_ahead(0) == [7, 8]
    if accepted < 2:
        cache.trim(0, 3 + accepted)
    cache.prepare([0], [[9]])
    assert cache.questions[0].tokens == [1, 2, 3, *[7, 8][:accepted], 9]
    usage = cache.usage([0])
    assert usage.rows_private == 4 + accepted
    assert (usage.tokens_sent, usage.tokens_cached) == (3, 2)


def test_the_limit_is_kept_and_the_cache_stays_usable() -> None:
    cache = cache_of(4, shared=True, limit=2 * 4 * 8)
    cache.prepare([0], [[1] * 8])
    with pytest.raises(MemoryLimitError, match="the server's blocks would hold"):
        cache.prepare([0], [[2]])
    cache.trim(0, 4)
    cache.prepare([0], [[3]])
    assert cache.questions[0].tokens == [1, 1, 1, 1, 3]
