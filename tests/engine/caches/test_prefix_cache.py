"""The radix tree of the prefix cache: what it finds, splits, holds and evicts, in any order."""

from dataclasses import replace

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from eab.engine.caches.prefix_cache import PrefixCache, PrefixSegment, Rows
from eab.engine.caches.shape import KVShape

SHAPE = KVShape(2, 1, 1, torch.float64, torch.device("cpu"))


def add(cache: PrefixCache, text: str, scope: str = "") -> None:
    """Add rows that hold the token as K and its negative as V, in both layers."""
    tokens = [*map(ord, text)]

    def rows(start: int, end: int) -> Rows:
        numbers = torch.tensor(tokens[start:end], dtype=torch.float64).view(1, -1, 1)
        return [numbers, numbers], [-numbers, -numbers]

    cache.add(scope, tokens, rows)


def found(cache: PrefixCache, text: str, scope: str = "") -> str:
    segment = cache.hold(scope, [*map(ord, text)])
    if segment is None:
        return ""
    cache.let_go(segment)
    return "".join(map(text_of, segment.chain))


def text_of(segment: PrefixSegment) -> str:
    return "".join(map(chr, segment.tokens))


def room_for(rows: int) -> PrefixCache:
    return PrefixCache(SHAPE, rows * SHAPE.row_bytes)


def test_the_longest_known_prefix_is_found():
    cache = room_for(100)
    add(cache, "once upon", scope="a")
    for text, known in {
        "once upon a time": "once upon",
        "once more": "once ",
        "two": "",
        "": "",
    }.items():
        assert found(cache, text, scope="a") == known
        assert found(cache, text, scope="b") == ""
        assert cache.known("b", [*map(ord, text)]) == 0
    for text in ("abcd", "abxy", "ab", "abcdef"):
        add(cache, text, scope="c")
    once = "once upon" + "ab" + "cd" + "xy" + "ef"  # what texts have in common is kept once
    assert cache.bytes_held == len(once) * SHAPE.row_bytes


def test_the_least_recently_used_text_is_evicted_first():
    cache = room_for(9)
    for text in ("aaa", "bbb", "ccc"):
        add(cache, text)
    found(cache, "aaa")
    add(cache, "ddd")
    assert [found(cache, text) for text in ("aaa", "bbb", "ccc", "ddd")] == [
        "aaa",
        "",
        "ccc",
        "ddd",
    ]


def test_a_segment_that_a_run_holds_stays_even_when_it_is_split():
    cache = room_for(6)
    add(cache, "abcdef")
    segment = cache.hold("", [*map(ord, "abcdef")])
    assert found(cache, "abx") == "ab"
    cache.evict(100)
    assert "".join(map(text_of, segment.chain)) == "abcdef"
    assert [one.readers for one in segment.chain] == [1, 1]
    add(cache, "xyz")  # does not fit
    assert found(cache, "xyz") == ""
    cache.let_go(segment)
    add(cache, "xyz")
    assert found(cache, "xyz") == "xyz"


class Texts(RuleBasedStateMachine):
    """Random adds, lookups, holds and releases, with room for a few texts only."""

    texts = st.text("ab", max_size=6)

    def __init__(self) -> None:
        super().__init__()
        self.cache = room_for(12)
        self.held: list[tuple[PrefixSegment, str]] = []

    @rule(text=texts, scope=st.sampled_from("xy"))
    def add(self, text: str, scope: str) -> None:
        add(self.cache, text, scope)

    @rule(text=texts, scope=st.sampled_from("xy"))
    def hold(self, text: str, scope: str) -> None:
        known = self.cache.known(scope, [*map(ord, text)])
        segment = self.cache.hold(scope, [*map(ord, text)])
        assert (0 if segment is None else segment.length) == known
        if segment is not None:
            self.held.append((segment, text[:known]))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        self.held.remove(held)
        self.cache.let_go(held[0])

    @rule(rows=st.integers(0, 12))
    def evict(self, rows: int) -> None:
        self.cache.evict(rows * SHAPE.row_bytes)

    @invariant()
    def held_texts_are_whole(self) -> None:
        for segment, text in self.held:
            rows = torch.cat([one.keys[1] for one in segment.chain], 1).flatten()
            assert rows.tolist() == [*map(ord, text)]
            assert torch.cat([one.values[0] for one in segment.chain], 1).flatten().equal(-rows)

    @invariant()
    def the_counts_add_up(self) -> None:
        segments = [*self.cache.segments()]
        rows = sum(len(one.tokens) for one in segments)
        assert self.cache.bytes_held == rows * SHAPE.row_bytes <= self.cache.byte_limit
        for segment in segments:
            holders = sum(segment in held.chain for held, _ in self.held)
            assert segment.readers == holders
            assert all(tensor.shape[1] == len(segment.tokens) for tensor in segment.keys)
            assert [*segment.children] == [one.tokens[0] for one in segment.children.values()]
            assert all(child.parent is segment for child in segment.children.values())


def test_any_order_of_adding_holding_and_evicting():
    run_state_machine_as_test(Texts, settings=settings(max_examples=100, stateful_step_count=40))


@pytest.mark.parametrize("rope_switch", [0, 64])
def test_rows_that_depend_on_the_length_of_the_text_are_not_reused(rope_switch):
    from eab.engine.caches.prefix_cache import can_reuse

    assert can_reuse(replace(SHAPE, rope_switch=rope_switch)) == (rope_switch == 0)
