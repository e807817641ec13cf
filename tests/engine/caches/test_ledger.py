"""The block ledger: small cases by hand, and any history against a set of the blocks' contents."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eab.engine.caches.ledger import BlockLedger
from eab.errors import ConfigError
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
