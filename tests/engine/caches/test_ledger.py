"""The block ledger: small cases by hand, and any history against a set of the blocks' contents. And the
bookkeeping of a KV cache on a server, on cases by hand.
"""

from itertools import count

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eab.engine.caches.ledger import BlockLedger
from eab.engine.caches.server import UNKNOWN, ServerAnswer, ServerCache
from eab.engine.caches.shape import KVShape, ServerBlocks
from eab.errors import ConfigError, MemoryLimitError
from eab.run.events import KVUsage, PathRows


def test_a_fork_shares_the_full_blocks_and_copies_the_last_one() -> None:
    ledger = BlockLedger(4, row_bytes=10)
    ledger.append(0, 10)
    ledger.fork(0, [1, 2, 3])
    tables = [ledger.block_table(path) for path in (1, 2, 3)]
    assert {table[:2] for table in tables} == {tables[0][:2]}
    assert len({table[2] for table in tables}) == 3
    assert ledger.usage([1, 2, 3]) == KVUsage(
        bytes_held=5 * 4 * 10,
        rows_shared=8,
        rows_private=6,
        rows_spare=6,
        rows_independent=30,
        paths=tuple(PathRows(path, 8, 2) for path in (1, 2, 3)),
        bytes_copied=2 * 2 * 10,
        allocations=5,
        peak_bytes=5 * 4 * 10,
    )


def test_what_forks_and_trims_copy() -> None:
    ledger = BlockLedger(4)
    ledger.append(0, 8)
    ledger.fork(0, [1, 2])
    assert ledger.usage([1, 2]).bytes_copied == 0, "at the boundary of a block"
    ledger.trim(2, 6)
    assert ledger.usage([1, 2]).bytes_copied == 2, "the remaining rows of a shared block"
    ledger.trim(2, 7)
    assert ledger.length(2) == 6, "there is nothing to remove"


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_block_has_at_least_one_row(size: int) -> None:
    with pytest.raises(ConfigError, match="the block size is"):
        BlockLedger(size)


class Contents:
    """A naive model: the tokens of each path, all different. A block is its content and all that
    comes before it, so full blocks with equal contents are one block.
    """

    def __init__(self, size: int) -> None:
        self.size, self.texts, self.fresh, self.most_blocks = size, {0: ()}, count(), 0

    def append(self, path: int, tokens: int) -> None:
        self.texts[path] += tuple(next(self.fresh) for _ in range(tokens))

    def fork(self, path: int, children: list[int]) -> None:
        self.texts |= dict.fromkeys(children, self.texts.pop(path))

    def full(self, path: int) -> set[tuple[int, ...]]:
        text = self.texts[path]
        return {text[:end] for end in range(self.size, len(text) + 1, self.size)}

    def check(self, ledger: BlockLedger) -> None:
        full = [self.full(path) for path in self.texts]
        rests = [len(text) % self.size for text in self.texts.values() if len(text) % self.size]
        distinct = set().union(*full)
        shared = {block for block in distinct if sum(block in one for one in full) > 1}
        usage = ledger.usage([*self.texts])
        assert ledger.num_blocks == len(distinct) + len(rests)
        assert usage.bytes_held == ledger.num_blocks * self.size
        assert usage.rows_shared == len(shared) * self.size
        assert usage.rows_private == (len(distinct) - len(shared)) * self.size + sum(rests)
        assert usage.rows_spare == sum(self.size - rest for rest in rests)
        assert usage.rows_independent == sum(map(len, self.texts.values()))
        self.most_blocks = max(self.most_blocks, ledger.num_blocks)
        assert usage.peak_bytes == self.most_blocks * self.size
        for (path, text), own in zip(self.texts.items(), full, strict=True):
            seen = len(own & shared) * self.size
            assert PathRows(path, seen, len(text) - seen) in usage.paths
            assert ledger.length(path) == len(text)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 6))
def test_any_history_holds_one_block_per_distinct_content(data: st.DataObject, size: int) -> None:
    ledger, contents, born = BlockLedger(size), Contents(size), count(1)
    for _ in range(data.draw(st.integers(1, 25))):
        if not contents.texts:
            break
        path = data.draw(st.sampled_from([*contents.texts]))
        match data.draw(st.sampled_from(["append", "fork", "trim", "release"])):
            case "append":
                tokens = data.draw(st.integers(0, 9))
                ledger.append(path, tokens)
                contents.append(path, tokens)
            case "fork":
                children = [next(born) for _ in range(data.draw(st.integers(1, 3)))]
                ledger.fork(path, children)
                contents.fork(path, children)
            case "trim":
                length = data.draw(st.integers(0, len(contents.texts[path])))
                ledger.trim(path, length)
                contents.texts[path] = contents.texts[path][:length]
            case "release":
                ledger.release(path)
                del contents.texts[path]
        contents.check(ledger)


SERVED = KVShape(1, 1, 1, torch.float32, torch.device("cpu"))  # 8 bytes per row


def cache_of(size: int, shared: bool, limit: int = 2**20) -> ServerCache:
    return ServerCache(SERVED, ServerBlocks(size, shared), limit)


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
    cache.trim(1, 2)
    cache.prepare([2], [[7]])
    assert cache.questions[0].tokens == [*range(1, 8)], "the text of the other path is trimmed"
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
