"""The order in which queued runs start, and how long they are estimated to wait."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server.live_run import LiveRun, LiveTask
from app.server.queue import QueuePosition, RunQueue, seconds_until_start
from eab.config import BranchingConfig
from eab.run import RunFold


def run(owner: str, max_turns: int = 10, turns: int = 0, seconds: float = 0.0) -> LiveRun:
    """A run as the queue sees it; `generate` is never called."""
    live = LiveRun(
        "x", BranchingConfig(), "embedded", RunFold(), lambda *_: iter(()), owner, max_turns
    )
    live.turns, live.seconds = turns, seconds
    return live


def queue_of(owners: Iterable[str]) -> RunQueue:
    queue = RunQueue()
    for owner in owners:
        queue.add(run(owner))
    return queue


def owners(runs: Iterable[LiveTask[Any]]) -> str:
    return "".join(one.owner for one in runs)


@pytest.mark.parametrize(
    ("came", "order"),
    [("", ""), ("abc", "abc"), ("aaaaab", "abaaaa"), ("aabcb", "abcab"), ("aaabbc", "abcaba")],
)
def test_everybodys_first_run_goes_before_anybodys_second(came: str, order: str) -> None:
    queue = queue_of(came)
    assert owners(queue.runs) == order
    assert owners(queue.pop() for _ in order) == order


def test_who_just_had_a_turn_goes_behind_who_had_none() -> None:
    queue = queue_of("aa")
    assert queue.pop().owner == "a"
    queue.add(run("b"))
    assert owners(queue.runs) == "ba"
    queue = queue_of("a")
    queue.pop()
    queue.add(run("a"))
    queue.add(run("b"))
    assert owners(queue.runs) == "ba"


def test_places_that_were_given_up_cost_nothing() -> None:
    queue = queue_of("b")
    for _ in range(4):  # Run is pressed five times; each time the one before is stopped
        given_up = run("a")
        queue.add(given_up)
        given_up.stop()
        queue.remove_ended()
    last = run("a")
    queue.add(last)
    queue.add(run("c"))
    queue.add(run("b"))
    assert owners(queue.runs) == "bacb"
    assert queue.runs[1] is last


STEPS = st.lists(
    st.one_of(st.sampled_from("abcd"), st.none()), max_size=30
)  # a run is added, or the next one starts


@given(STEPS)
def test_the_order_is_fair_stable_and_loses_nobody(steps: list[str | None]) -> None:
    queue, came, started = RunQueue(), [], []
    for owner in steps:
        before = queue.runs
        if owner is None and before:
            started.append(queue.pop())
            assert started[-1] is before[0]
        elif owner is not None:
            came.append(run(owner))
            queue.add(came[-1])
            others = [one for one in queue.runs if one is not came[-1]]
            assert others == before, "a new run changes nobody's order"
    while queue.runs:
        started.append(queue.pop())
    assert Counter(map(id, started)) == Counter(map(id, came))
    for owner in "abcd":
        assert [one for one in started if one.owner == owner] == [
            one for one in came if one.owner == owner
        ]


@given(STEPS, st.integers(1, 6))
def test_who_waits_sees_at_most_one_run_of_each_other_owner_start_before(
    steps: list[str | None], busy: int
) -> None:
    queue = queue_of("z" * busy)
    for owner in steps:
        if owner is None and queue.runs:
            queue.pop()
        elif owner is not None:
            queue.add(run(owner))
    own = run("new")
    queue.add(own)
    before = Counter(one.owner for one in queue.runs[: queue.runs.index(own)])
    assert all(count <= 1 for count in before.values())


def test_the_wait_is_what_the_runs_before_still_need() -> None:
    running = [
        run("a", max_turns=10, turns=4, seconds=2.0),
        run("b", max_turns=20, turns=4, seconds=2.0),
    ]  # 0.5 s a turn
    waiting = [run("c", max_turns=5), run("d", max_turns=5)]
    # a needs 6 more rounds of 1 s; then c takes 5 rounds beside b, which needs 14 more in all
    assert seconds_until_start(waiting[:1], running, max_running=2) == 6.0
    assert seconds_until_start(waiting, running, max_running=2) == 11.0


def test_there_is_no_estimate_before_anything_was_measured() -> None:
    queue, own = queue_of("b"), run("c")
    queue.add(own)
    assert queue.position(own, [run("a")], max_running=1) == QueuePosition(2, 2, None)
    assert queue.position(run("d"), [run("a")], max_running=1) is None


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
)
def test_the_wait_equals_that_of_turns_taken_one_by_one(
    left: list[int], max_turns: list[int]
) -> None:
    max_running = len(left)
    running = [run("r", max_turns=1 + count, turns=1, seconds=0.25) for count in left]
    waiting = [run(str(number), count) for number, count in enumerate(max_turns)]
    for place in range(len(waiting)):
        estimate = seconds_until_start(waiting[: place + 1], running, max_running)
        assert estimate == pytest.approx(
            0.25 * _turns_before(list(left), list(max_turns[: place + 1]), max_running)
        )


def _turns_before(active: list[int], queue: list[int], max_running: int) -> int:
    """Turns of all until the last in the queue starts, simulated."""
    turns = 0
    while True:
        while len(active) < max_running:
            active.append(queue.pop(0))
            if not queue:
                return turns
        turns += len(active)
        active = [left - 1 for left in active if left > 1]
