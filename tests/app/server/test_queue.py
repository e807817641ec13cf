"""The estimated wait of queued runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server.estimate import QueuePosition, position_in, seconds_until_start
from app.server.live_run import LiveRun
from eab.engine.job import Job
from eab.run import RunFold


def run(owner: str, max_turns: int = 10, turns: int = 0, seconds: float = 0.0) -> LiveRun:
    """A run as the queue sees it; `begin` is never called."""
    job = Job("run", "embedded", RunFold(), lambda _: iter(()), max_turns=max_turns)
    live = LiveRun(job, owner)
    live.turns, live.seconds = turns, seconds
    return live


def test_there_is_no_estimate_before_anything_was_measured() -> None:
    others, own = [run("b")], run("c")
    assert position_in([*others, own], own, [run("a")], 1) == QueuePosition(2, 2, None)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
)
def test_the_estimated_wait_equals_that_of_a_simulation(
    left: list[int], max_turns: list[int]
) -> None:
    max_running = len(left)
    running = [run("r", max_turns=2 + count, turns=2, seconds=0.5) for count in left]
    waiting = [run(str(number), count) for number, count in enumerate(max_turns)]
    for place in range(len(waiting)):
        estimate = seconds_until_start(waiting[: place + 1], running, max_running)
        assert estimate == pytest.approx(
            0.25 * _rounds_before(list(left), list(max_turns[: place + 1]), max_running)
        )


def _rounds_before(active: list[int], queue: list[int], max_running: int) -> int:
    """The simulated number of shared passes until the last run in the queue starts."""
    rounds = 0
    while True:
        while len(active) < max_running:
            active.append(queue.pop(0))
            if not queue:
                return rounds
        rounds += 1
        active = [left - 1 for left in active if left > 1]
