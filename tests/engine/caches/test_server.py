"""The bookkeeping of a KV cache on a server, on cases written by hand."""

import pytest
import torch

from eab.engine.caches.server import UNKNOWN, ServerAnswer, ServerCache
from eab.engine.caches.shape import KVShape, ServerBlocks
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


def test_a_pass_asks_the_server_about_whole_texts() -> None:
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
def test_tokens_that_the_server_chose_stay_up_to_the_first_rejected_one(accepted: int) -> None:
    cache = cache_of(1, shared=True)
    cache.prepare([0], [[1, 2]])
    cache.prepare([0], [[3, UNKNOWN, UNKNOWN]], [3])
    [question] = cache.questions
    assert (question.known, question.ahead) == (1, 2)
    cache.note_answers([ServerAnswer(3, [7, 8], [{}, {}, {}])], sent=3, cached=2)
    assert cache.run_ahead(0) == [7, 8]
    if accepted < 2:
        cache.trim(0, 3 + accepted)
    cache.prepare([0], [[9]])
    assert cache.questions[0].tokens == [1, 2, 3, *[7, 8][:accepted], 9]
    usage = cache.usage([0])
    assert usage.rows_private == 4 + accepted
    assert (usage.tokens_sent, usage.tokens_cached) == (3, 2)


def test_the_limit_holds_and_the_cache_stays_usable() -> None:
    cache = cache_of(4, shared=True, limit=2 * 4 * 8)
    cache.prepare([0], [[1] * 8])
    with pytest.raises(MemoryLimitError, match="the server's blocks would hold"):
        cache.prepare([0], [[2]])
    cache.trim(0, 4)
    cache.prepare([0], [[3]])
    assert cache.questions[0].tokens == [1, 1, 1, 1, 3]


def asked(cache: ServerCache) -> list[tuple[int, list[int]]]:
    """The paths that the server must be asked about, each with its tokens."""
    return [(one.path, one.tokens) for one in cache.questions if one.answer is None]


def test_nothing_is_asked_for_a_child_that_follows_the_server() -> None:
    cache = cache_of(1, shared=True)
    cache.prepare([0], [[1, 2, UNKNOWN, UNKNOWN]], [3])
    tops = [{7: -0.1}, {8: -0.2}, {9: -0.3}]
    cache.note_answers([ServerAnswer(2, [7, 8], tops)], sent=2, cached=0)
    cache.trim(0, 2)
    cache.fork(0, [1, 2])
    batch = cache.prepare([1, 2], [[7, UNKNOWN], [5, UNKNOWN]], [2, 2])
    assert asked(cache) == [(2, [1, 2, 5])]
    assert (batch.ids.tolist(), batch.positions.tolist()) == ([5, UNKNOWN], [2, 3])
    assert batch.logits_indices.tolist() == [0, 1, 2, 3]
    followed = cache.questions[0]
    assert list(followed.answer.tops[followed.at :]) == tops[1:]
    assert cache.run_ahead(1) == [8]
    # One child accepted a token; the other rejected it.
    assert cache.drafts == [(1, 1), (1, 0)]


def test_the_server_is_asked_again_when_a_path_leaves_or_uses_up_its_answer() -> None:
    cache = cache_of(1, shared=True)
    cache.prepare([0], [[1, UNKNOWN]], [2])
    cache.note_answers([ServerAnswer(1, [7], [{}, {}])], sent=1, cached=0)
    cache.prepare([0], [[5]])
    assert asked(cache) == [(0, [1, 7, 5])]
    assert cache.drafts == [(1, 1)], "the token was accepted, and none was left to reject"
    cache.note_answers([ServerAnswer(3, [], [{}])], sent=3, cached=2)
    cache.prepare([0], [[6]])
    assert asked(cache) == [(0, [1, 7, 5, 6])]
    assert not cache.drafts
