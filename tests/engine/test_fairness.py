"""The order in which queued runs start, and which continue when KV memory runs short."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.engine.fairness import FairQueue, runs_that_fit


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
    had_a_turn = queue_of("a")
    had_a_turn.pop()
    for owner in "ab":
        had_a_turn.add(Asked(owner))
    assert owners(had_a_turn.entries) == "ba"


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
            ahead = Counter(one.owner for one in queue.entries[: queue.entries.index(came[-1])])
            if owner not in {one.owner for one in (*before, *started)}:
                assert max(ahead.values(), default=0) <= 1, "at most one of each other owner"
    while queue.entries:
        started.append(queue.pop())
    assert Counter(map(id, started)) == Counter(map(id, came))
    for owner in "abcd":
        assert [one for one in started if one.owner == owner] == [
            one for one in came if one.owner == owner
        ]


@dataclass(eq=False)
class Rows:
    """A run that holds `held` bytes and grows by `grows`; its `fixed` bytes cannot be freed."""

    held: int
    grows: int
    fixed: int = 0

    @property
    def kv_held(self) -> int:
        return self.fixed + self.held

    @property
    def kv_next(self) -> int:
        return self.kv_held + self.grows

    def preempt(self) -> None:
        self.held = 0


def test_the_youngest_run_pauses_first_and_is_freed_only_if_that_is_not_enough():
    first, second, third = runs = [Rows(10, 2), Rows(10, 2), Rows(10, 2)]
    assert runs_that_fit(runs, 36) == runs
    assert runs_that_fit(runs, 34) == [first, second]
    assert third.held == 10
    assert runs_that_fit(runs, 33) == [first, second]
    assert third.held == 0
    assert runs_that_fit(runs, 20) == [first]
    assert second.held == 0
    assert runs_that_fit(runs, 1) == [first], "the oldest always goes on"


@given(
    st.lists(
        st.builds(Rows, st.integers(0, 20), st.integers(0, 9), st.sampled_from([0, 0, 5])),
        min_size=1,
    ),
    st.integers(0, 200),
)
def test_the_runs_that_continue_fit_and_none_is_freed_without_need(runs, limit):
    before = [run.held for run in runs]
    going = runs_that_fit(runs, limit)
    paused = runs[len(going) :]
    assert going == runs[: len(going)] != []
    after = sum(run.kv_next for run in going) + sum(run.kv_held for run in paused)
    assert after <= limit or len(going) == 1
    assert [run.held for run in going] == before[: len(going)]
    if paused:  # with the oldest paused run, too, they would not fit unless others lost rows
        whole = sum(run.kv_next for run in runs[: len(going) + 1])
        held = sum(run.fixed + rows for run, rows in zip(runs, before, strict=True))
        assert whole + held > limit
