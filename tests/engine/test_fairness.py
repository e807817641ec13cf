"""The order in which queued runs start."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.engine.fairness import FairQueue


@dataclass(frozen=True, eq=False)
class Asked:
    """An entry that an owner waits for."""

    owner: str


def queue_of(owners: Iterable[str]) -> FairQueue[Asked]:
    queue = FairQueue()
    for owner in owners:
        queue.add(Asked(owner))
    return queue


def owners(runs: Iterable[Asked]) -> str:
    return "".join(one.owner for one in runs)


@pytest.mark.parametrize(
    ("came", "order"),
    [("", ""), ("abc", "abc"), ("aaaaab", "abaaaa"), ("aabcb", "abcab"), ("aaabbc", "abcaba")],
)
def test_every_owners_first_run_comes_before_any_owners_second(came: str, order: str) -> None:
    queue = queue_of(came)
    assert owners(queue.entries) == order
    assert owners(queue.pop() for _ in order) == order


def test_an_owner_who_just_had_a_turn_comes_after_one_who_had_none() -> None:
    queue = queue_of("aa")
    assert queue.pop().owner == "a"
    queue.add(Asked("b"))
    assert owners(queue.entries) == "ba"
    queue = queue_of("a")
    queue.pop()
    queue.add(Asked("a"))
    queue.add(Asked("b"))
    assert owners(queue.entries) == "ba"


def test_withdrawn_entries_cost_nothing() -> None:
    queue = queue_of("b")
    for _ in range(4):  # Run is pressed five times; each press withdraws the run before
        given_up = Asked("a")
        queue.add(given_up)
        queue.remove(given_up)
    last = Asked("a")
    queue.add(last)
    queue.add(Asked("c"))
    queue.add(Asked("b"))
    assert owners(queue.entries) == "bacb"
    assert queue.entries[1] is last


STEPS = st.lists(
    st.one_of(st.sampled_from("abcd"), st.none()), max_size=30
)  # an owner adds a run; None starts the next one


@given(STEPS)
def test_the_order_is_fair_and_stable_and_loses_no_run(steps: list[str | None]) -> None:
    queue, came, started = FairQueue(), [], []
    for owner in steps:
        before = queue.entries
        if owner is None and before:
            started.append(queue.pop())
            assert started[-1] is before[0]
        elif owner is not None:
            came.append(Asked(owner))
            queue.add(came[-1])
            others = [one for one in queue.entries if one is not came[-1]]
            assert others == before, "a new run changes nobody's order"
    while queue.entries:
        started.append(queue.pop())
    assert Counter(map(id, started)) == Counter(map(id, came))
    for owner in "abcd":
        assert [one for one in started if one.owner == owner] == [
            one for one in came if one.owner == owner
        ]


@given(STEPS, st.integers(1, 6))
def test_at_most_one_run_of_each_other_owner_starts_before_a_waiting_run(
    steps: list[str | None], busy: int
) -> None:
    queue = queue_of("z" * busy)
    for owner in steps:
        if owner is None and queue.entries:
            queue.pop()
        elif owner is not None:
            queue.add(Asked(owner))
    own = Asked("new")
    queue.add(own)
    before = Counter(one.owner for one in queue.entries[: queue.entries.index(own)])
    assert all(count <= 1 for count in before.values())
