"""The system clock jumps: nothing ends, nothing is lost, and the order stays."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from itertools import count
from pathlib import Path

import pytest
from breaking_model import BreakingModel
from made_runs import bundled
from waiting import ended, wait_until

from app.server.classroom import Classroom
from app.server.model_cache import ModelCache
from app.server.rules import Rules
from app.server.store import RUNS, NamedStore, RunStore
from app.server.worker import Worker
from eab.config import BranchingConfig
from eab.engine.job import run_job
from eab.errors import LimitError


class Jumping(datetime):
    """A clock that shows another day at each reading."""

    days: Iterator[int]

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Jumping":
        return cls(2026, 1, 1, tzinfo=tz) + timedelta(days=next(cls.days))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """A store on a machine whose clock goes back by a day at each reading."""
    monkeypatch.setattr(Jumping, "days", iter(range(1000, 0, -1)), raising=False)
    monkeypatch.setattr("app.server.store.datetime", Jumping)
    return NamedStore(tmp_path / "runs.sqlite", RUNS)


def test_the_last_saved_run_comes_first_even_if_the_clock_goes_back(
    store: RunStore,
) -> None:
    saved = [store.save(str(number), bundled("coin")) for number in range(3)]
    assert saved[0].saved_at > saved[2].saved_at
    assert store.all() == saved[::-1]


@pytest.mark.parametrize("day", [24 * 3600.0, -24 * 3600.0])
def test_a_clock_jump_does_not_affect_a_run_an_allowance_or_a_class(
    monkeypatch: pytest.MonkeyPatch, day: float
) -> None:
    looks = count()
    monkeypatch.setattr(time, "time", lambda: 1.8e9 + day * next(looks))
    room, rules = Classroom(), Rules(seconds_per_hour=1)
    worker = Worker(ModelCache(lambda _: working()), rules=rules)
    run = worker.start(run_job("1 2", BranchingConfig(max_new_tokens=4000, max_paths=16), "any"))
    wait_until(lambda: run.seconds >= 1 or not run.active)
    assert run.active
    run.stop()
    assert ended(run).ending == ("stopped", "")
    with pytest.raises(LimitError, match="Try again in "):
        worker.start(run_job("1 2", run.request.config, "any"))
    assert not room.state.ended
    worker.close()


def working() -> BreakingModel:
    return BreakingModel(RuntimeError(), passes=10**9)
