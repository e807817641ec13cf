"""The order in which runs begin, and how long the wait is said to be."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server.live_run import Live, LiveRun
from app.server.queue import QueuePosition, RunQueue, seconds_until_begin
from eab.config import BranchingConfig
from eab.run import RunFold


def run(owner: str, longest: int = 10, turns: int = 0, seconds: float = 0.0) -> LiveRun:
    """A run as the line sees it; `make` is never called."""
    live = LiveRun(
        "x", BranchingConfig(), "embedded", RunFold(), lambda *_: iter(()), owner, longest
    )
    live.turns, live.seconds = turns, seconds
    return live


def line_of(owners: Iterable[str]) -> RunQueue:
    line = RunQueue()
    for owner in owners:
        line.join(run(owner))
    return line


def owners(runs: Iterable[Live[Any]]) -> str:
    return "".join(one.owner for one in runs)


@pytest.mark.parametrize(
    ("came", "order"),
    [("", ""), ("abc", "abc"), ("aaaaab", "abaaaa"), ("aabcb", "abcab"), ("aaabbc", "abcaba")],
)
def test_everybodys_first_run_goes_before_anybodys_second(came: str, order: str) -> None:
    line = line_of(came)
    assert owners(line.runs) == order
    assert owners(line.first() for _ in order) == order


def test_who_just_had_a_turn_goes_behind_who_had_none() -> None:
    line = line_of("aa")
    assert line.first().owner == "a"
    line.join(run("b"))
    assert owners(line.runs) == "ba"
    line = line_of("a")
    line.first()
    line.join(run("a"))
    line.join(run("b"))
    assert owners(line.runs) == "ba"


def test_places_that_were_given_up_cost_nothing() -> None:
    line = line_of("b")
    for _ in range(4):  # Run is pressed five times; each time the one before is stopped
        given_up = run("a")
        line.join(given_up)
        given_up.stop()
        line.drop_ended()
    last = run("a")
    line.join(last)
    line.join(run("c"))
    line.join(run("b"))
    assert owners(line.runs) == "bacb"
    assert line.runs[1] is last


STEPS = st.lists(
    st.one_of(st.sampled_from("abcd"), st.none()), max_size=30
)  # somebody joins, or the next one begins


@given(STEPS)
def test_the_order_is_fair_stable_and_loses_nobody(steps: list[str | None]) -> None:
    line, came, begun = RunQueue(), [], []
    for owner in steps:
        before = line.runs
        if owner is None and before:
            begun.append(line.first())
            assert begun[-1] is before[0]
        elif owner is not None:
            came.append(run(owner))
            line.join(came[-1])
            others = [one for one in line.runs if one is not came[-1]]
            assert others == before, "who joins changes nobody's order"
    while line.runs:
        begun.append(line.first())
    assert Counter(map(id, begun)) == Counter(map(id, came))
    for owner in "abcd":
        assert [one for one in begun if one.owner == owner] == [
            one for one in came if one.owner == owner
        ]


@given(STEPS, st.integers(1, 6))
def test_who_waits_sees_at_most_one_run_of_each_other_owner_begin_before(
    steps: list[str | None], busy: int
) -> None:
    line = line_of("z" * busy)
    for owner in steps:
        if owner is None and line.runs:
            line.first()
        elif owner is not None:
            line.join(run(owner))
    own = run("new")
    line.join(own)
    before = Counter(one.owner for one in line.runs[: line.runs.index(own)])
    assert all(count <= 1 for count in before.values())


def test_the_wait_is_what_the_runs_before_still_need() -> None:
    running = [
        run("a", longest=10, turns=4, seconds=2.0),
        run("b", longest=20, turns=4, seconds=2.0),
    ]  # 0.5 s a turn
    waiting = [run("c", longest=5), run("d", longest=5)]
    # a needs 6 more rounds of 1 s; then c takes 5 rounds beside b, which needs 14 more in all
    assert seconds_until_begin(waiting[:1], running, at_once=2) == 6.0
    assert seconds_until_begin(waiting, running, at_once=2) == 11.0


def test_nothing_is_said_of_the_time_before_anything_was_measured() -> None:
    line, own = line_of("b"), run("c")
    line.join(own)
    assert line.position(own, [run("a")], at_once=1) == QueuePosition(2, 2, None)
    assert line.position(run("d"), [run("a")], at_once=1) is None


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
)
def test_the_wait_equals_that_of_turns_taken_one_by_one(
    left: list[int], longest: list[int]
) -> None:
    at_once = len(left)
    running = [run("r", longest=1 + count, turns=1, seconds=0.25) for count in left]
    waiting = [run(str(number), count) for number, count in enumerate(longest)]
    for place in range(len(waiting)):
        told = seconds_until_begin(waiting[: place + 1], running, at_once)
        assert told == pytest.approx(
            0.25 * _turns_before(list(left), list(longest[: place + 1]), at_once)
        )


def _turns_before(active: list[int], queue: list[int], at_once: int) -> int:
    """Turns of all until the last in the queue begins, played out."""
    turns = 0
    while True:
        while len(active) < at_once:
            active.append(queue.pop(0))
            if not queue:
                return turns
        turns += len(active)
        active = [left - 1 for left in active if left > 1]
