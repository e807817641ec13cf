"""Files of runs in progress, next to the store: left by a killed server, saved by the next one."""

import errno
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from app.server import unfinished
from app.server.store import RUNS, SWEEPS, NamedStore, RunStore
from app.server.tasks import LiveRun, LiveTask
from app.server.unfinished import RUN, SWEEP, Keeper, Unfinished
from eab.engine.job import Job, run_job
from eab.engine.request import Request
from eab.labs.tuning.report import TuningReport
from eab.lessons import bundled_runs
from eab.run import fold, record
from eab.run.events import Event, Pause, RunEnded

EVENTS = record.load("assets/runs/coin.eab")
ENDS = [count for count, event in enumerate(EVENTS, start=1) if isinstance(event, Pause)]
BEGUN, LATER, LAST = ENDS[3], ENDS[5], ENDS[-1]  # numbers of events, each at the end of a step
STEPS = len(fold(EVENTS).steps)
PROMPT = fold(EVENTS).started.prompt
REQUESTS = (Request(PROMPT, fold(EVENTS).started.config),)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return NamedStore(tmp_path / "runs.sqlite", RUNS)


@pytest.fixture
def server(store: RunStore) -> Iterator[Unfinished[Any]]:
    made = Unfinished(store, RUN)
    yield made
    made.leave()


def live(events: list[Event], kind: str = "run") -> LiveRun:
    """A live run with these events so far."""
    job = run_job(PROMPT, fold(EVENTS).started.config, "embedded")
    run = LiveTask(replace(job, kind=kind))
    run.advance_to("running")
    for event in events:
        run.apply(event)
    return run


def live_sweep(cells: int) -> LiveTask[TuningReport]:
    """The recorded sweep as a live task that has this many cells so far."""
    report = bundled_runs.tuning()
    assert report.plan is not None
    task = LiveTask(
        Job("sweep", "embedded", TuningReport(), begin=lambda _: iter(()), requests=REQUESTS)
    )
    task.advance_to("running")
    for event in (report.began, *report.cells[:cells]):
        task.apply(event)
    return task


def files(store: NamedStore[Any]) -> list[Path]:
    return [*store.path.with_suffix(".unfinished").glob("*")]


def cut(run: LiveRun) -> str:
    return f" (breaks off after {len(run.state.started_run().steps)} steps)"


def test_the_next_server_saves_the_run_that_a_killed_server_left(
    store: RunStore, server: Unfinished[Any]
) -> None:
    run = live(EVENTS[:BEGUN])
    server.write([run])
    assert record.load(*files(store)) == run.events
    for event in EVENTS[BEGUN:LAST]:
        run.apply(event)
    server.write([run])
    server.leave()  # as the system does when a process is killed
    assert Unfinished(store, RUN).recover() == [PROMPT + cut(run)]
    [saved] = store.all()
    assert store.load(saved.id)[1] == EVENTS[:LAST]
    assert saved.name == PROMPT + cut(run)
    assert not files(store)
    assert Unfinished(store, RUN).recover() == []


def test_a_run_that_has_ended_or_was_stopped_leaves_no_file(
    store: RunStore, server: Unfinished[Any]
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


def test_runs_without_a_step_and_probes_are_not_written(
    store: RunStore, server: Unfinished[Any]
) -> None:
    server.write([live(EVENTS[:1]), live(EVENTS[:BEGUN], "probe")])
    assert not files(store)


def test_the_files_of_a_live_server_are_left_alone(store: RunStore, server: Unfinished) -> None:
    run = live(EVENTS[:BEGUN])
    server.write([run])
    assert Unfinished(store, RUN).recover() == []
    assert record.load(*files(store)) == run.events
    assert store.all() == []


def test_a_torn_file_is_saved_up_to_its_last_step_and_other_files_stay(
    store: RunStore, server: Unfinished[Any]
) -> None:
    server.write([live(EVENTS[:LAST])])
    server.leave()
    [file] = files(store)
    file.write_bytes(file.read_bytes()[:-40])
    file.with_name("empty.eab").write_bytes(b"")
    other = file.with_name("other.eab")
    other.write_bytes(b"something else")
    assert len(Unfinished(store, RUN).recover()) == 1
    events = store.load(store.all()[0].id)[1]
    assert 1 < len(fold(events).steps) < STEPS
    assert events == EVENTS[: len(events)]
    assert files(store) == [other]


def test_unfinished_runs_stay_in_their_files_while_the_store_is_full(
    store: RunStore, server: Unfinished[Any], caplog: pytest.LogCaptureFixture
) -> None:
    server.write([live(EVENTS[:BEGUN])])
    server.leave()
    full = NamedStore(store.path, replace(RUNS, most=0))
    with caplog.at_level(logging.WARNING):
        assert Unfinished(full, RUN).recover() == []
    assert "is not saved: the store contains 0 runs" in caplog.text
    assert PROMPT not in caplog.text
    assert len(files(store)) == 1
    assert len(Unfinished(store, RUN).recover()) == 1


def test_on_a_full_disk_the_run_continues_and_its_written_events_stay(
    store: RunStore,
    server: Unfinished[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def is_full(_file: object, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = live(EVENTS[:BEGUN])
    server.write([run])
    monkeypatch.setattr(unfinished._File, "_append", is_full)
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


def test_a_run_continues_if_its_file_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    server = Unfinished(NamedStore(tmp_path / "file" / "runs.sqlite", RUNS), RUN)
    server.write([live(EVENTS[:BEGUN])])
    server.write([live(EVENTS[:BEGUN])])
    assert "no longer saved" in caplog.text
    assert server.recover() == []


def test_a_keeper_writes_while_the_server_lives_and_leaves_its_files_behind(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "EVERY", 0.01)
    run = live(EVENTS[:BEGUN])
    keeper = Keeper(lambda: [run], [Unfinished(store, RUN)])
    wait_until(lambda: any(file.stat().st_size for file in files(store)))
    for event in EVENTS[BEGUN:LAST]:
        run.apply(event)
    keeper.close()
    assert record.load(*files(store)) == EVENTS[:LAST]
    Keeper(list, [Unfinished(store, RUN)]).close()
    assert [saved.name for saved in store.all()] == [PROMPT + cut(run)]


class TestSweeps:
    @pytest.fixture
    def sweeps(self, tmp_path: Path) -> NamedStore[TuningReport]:
        return NamedStore(tmp_path / "runs-sweeps.sqlite", SWEEPS)

    def test_the_sweep_that_a_killed_server_left_is_saved_and_can_be_resumed(
        self, sweeps: NamedStore[TuningReport], caplog: pytest.LogCaptureFixture
    ) -> None:
        server, task = Unfinished(sweeps, SWEEP), live_sweep(3)
        server.write([task])
        cells = bundled_runs.tuning().cells
        for cell in cells[3:5]:
            task.apply(cell)
        server.write([task])
        server.write([task])
        assert Unfinished(sweeps, SWEEP).recover() == [], "the server lives"
        server.leave()
        [file] = files(sweeps)
        file.write_bytes(file.read_bytes()[:-9])  # killed while writing the last line
        file.with_name("other.sweep").write_bytes(b"no sweep\n")
        file.with_name("empty.sweep").write_bytes(b"")
        name = f"Sweep (breaks off after 4 of {len(cells):,} cells)"
        assert Unfinished(sweeps, SWEEP).recover() == [name]
        [saved] = sweeps.all()
        report = sweeps.load(saved.id)[1]
        assert saved.name == name
        assert report.cells == cells[:4]
        assert report.plan == bundled_runs.tuning().plan
        assert report.ended == RunEnded(0, "stopped")
        assert [file.name for file in files(sweeps)] == ["other.sweep"]
        assert "other.sweep is not saved" in caplog.text

    def test_an_ended_sweep_a_sweep_without_cells_and_a_pilot_leave_no_file(
        self, sweeps: NamedStore[TuningReport]
    ) -> None:
        server, task, pilot = Unfinished(sweeps, SWEEP), live_sweep(3), live_sweep(3)
        pilot.job = replace(pilot.job, kind="pilot")
        server.write([task, pilot, live_sweep(0)])
        assert len(files(sweeps)) == 1
        task.apply(RunEnded(0, "stopped"))
        server.write([task, pilot])
        assert not files(sweeps)
