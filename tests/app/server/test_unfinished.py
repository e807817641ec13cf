"""Runs that are being made, in files beside the store: left by a killed server, saved by the next."""

import errno
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import wait_until

from app.server import unfinished
from app.server.job import run_job
from app.server.live_run import LiveRun, LiveTask
from app.server.named_store import NamedStore
from app.server.store import RUNS, RunStore
from app.server.unfinished import Keeper, Unfinished
from eab import record
from eab.events import Event, Pause
from eab.record.growing_file import GrowingFile
from eab.run import fold

EVENTS = record.load("assets/runs/coin.eab")
ENDS = [count for count, event in enumerate(EVENTS, start=1) if isinstance(event, Pause)]
BEGUN, LATER, LAST = ENDS[3], ENDS[5], ENDS[-1]  # events, up to a whole step
STEPS = len(fold(EVENTS).steps)
PROMPT = fold(EVENTS).started.prompt


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return NamedStore(tmp_path / "runs.sqlite", RUNS)


@pytest.fixture
def server(store: RunStore) -> Iterator[Unfinished]:
    made = Unfinished(store)
    yield made
    made.leave()


def live(events: list[Event], kind: str = "run") -> LiveRun:
    """A run that has come so far."""
    job = run_job(PROMPT, fold(EVENTS).started.config, "embedded")
    run = LiveTask(replace(job, kind=kind))
    run.advance_to("running")
    for event in events:
        run.apply(event)
    return run


def files(store: RunStore) -> list[Path]:
    return [*store.path.with_suffix(".unfinished").glob("*")]


def cut(run: LiveRun) -> str:
    return f" (breaks off after {len(run.state.started_run().steps)} steps)"


def test_what_a_killed_server_left_is_a_saved_run_of_the_next(
    store: RunStore, server: Unfinished
) -> None:
    run = live(EVENTS[:BEGUN])
    server.write([run])
    assert record.load(*files(store)) == run.events
    for event in EVENTS[BEGUN:LAST]:
        run.apply(event)
    server.write([run])
    server.leave()  # as the system does for a process that is killed
    assert Unfinished(store).adopt() == [PROMPT + cut(run)]
    [saved] = store.all()
    assert store.load(saved.id)[1] == EVENTS[:LAST]
    assert saved.name == PROMPT + cut(run)
    assert not files(store)
    assert Unfinished(store).adopt() == []


def test_a_run_that_has_ended_or_was_stopped_leaves_no_file(
    store: RunStore, server: Unfinished
) -> None:
    run, other = live(EVENTS[:BEGUN]), live(EVENTS[:BEGUN])
    server.write([run, other])
    assert len(files(store)) == 2
    for event in EVENTS[BEGUN:]:
        run.apply(event)
    server.write([run, other])
    assert len(files(store)) == 1
    other.fail("it broke")
    server.write([run, other])
    assert not files(store)


def test_what_has_no_step_and_what_nobody_asked_for_is_not_written(
    store: RunStore, server: Unfinished
) -> None:
    server.write([live(EVENTS[:1]), live(EVENTS[:BEGUN], "probe")])
    assert not files(store)


def test_a_server_that_lives_keeps_its_files(store: RunStore, server: Unfinished) -> None:
    run = live(EVENTS[:BEGUN])
    server.write([run])
    assert Unfinished(store).adopt() == []
    assert record.load(*files(store)) == run.events
    assert store.all() == []


def test_a_torn_file_is_saved_up_to_its_last_step_and_what_is_none_stays(
    store: RunStore, server: Unfinished
) -> None:
    server.write([live(EVENTS[:LAST])])
    server.leave()
    [file] = files(store)
    file.write_bytes(file.read_bytes()[:-40])
    file.with_name("empty.eab").write_bytes(b"")
    other = file.with_name("other.eab")
    other.write_bytes(b"something else")
    assert len(Unfinished(store).adopt()) == 1
    events = store.load(store.all()[0].id)[1]
    assert 1 < len(fold(events).steps) < STEPS
    assert events == EVENTS[: len(events)]
    assert files(store) == [other]


def test_where_the_store_is_full_they_wait_for_room(
    store: RunStore, server: Unfinished, caplog: pytest.LogCaptureFixture
) -> None:
    server.write([live(EVENTS[:BEGUN])])
    server.leave()
    full = NamedStore(store.path, replace(RUNS, most=0))
    with caplog.at_level(logging.WARNING):
        assert Unfinished(full).adopt() == []
    assert "is not saved: the store contains 0 runs" in caplog.text
    assert PROMPT not in caplog.text
    assert len(files(store)) == 1
    assert len(Unfinished(store).adopt()) == 1


def test_where_the_disk_is_full_the_run_goes_on_and_what_was_written_stays(
    store: RunStore,
    server: Unfinished,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def is_full(_: GrowingFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = live(EVENTS[:BEGUN])
    server.write([run])
    monkeypatch.setattr(GrowingFile, "_append", is_full)
    for event in EVENTS[BEGUN:LATER]:
        run.apply(event)
        server.write([run])
    assert caplog.text.count("No space left on device") == 1
    assert record.load(*files(store)) == EVENTS[:BEGUN]
    for event in EVENTS[LATER:]:
        run.apply(event)
    server.write([run])
    assert run.status == "ended"
    assert not files(store)


def test_where_nothing_can_be_written_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    server = Unfinished(NamedStore(tmp_path / "file" / "runs.sqlite", RUNS))
    server.write([live(EVENTS[:BEGUN])])
    server.write([live(EVENTS[:BEGUN])])
    assert "not kept any longer" in caplog.text
    assert server.adopt() == []


def test_a_keeper_writes_while_the_server_lives_and_leaves_the_files_when_it_ends(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "EVERY", 0.01)
    run = live(EVENTS[:BEGUN])
    keeper = Keeper(lambda: [run], store)
    wait_until(lambda: bool(files(store)) and record.load(*files(store)) == EVENTS[:BEGUN])
    for event in EVENTS[BEGUN:LAST]:
        run.apply(event)
    keeper.close()
    assert record.load(*files(store)) == EVENTS[:LAST]
    Keeper(list, store).close()
    assert [saved.name for saved in store.all()] == [PROMPT + cut(run)]
