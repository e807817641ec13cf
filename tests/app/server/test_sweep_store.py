"""Saved sweeps: a file of their own beside that of the runs, with the same care. What a store does
in general is in test_store.py.
"""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cells import cell

from app.server import rules
from app.server.named_store import NamedStore
from app.server.store import RUNS, default_store
from app.server.sweep_store import SWEEPS, default_sweep_store
from eab.errors import RecordError, StoreError
from eab.events import RunEnded
from eab.labs.tuning.report import Began, TuningReport, dumps
from eab.lessons import bundled_runs

EVENTS = bundled_runs.events_of(bundled_runs.recordings()[1])


def report(cells: int = 3) -> TuningReport:
    made = TuningReport()
    made.apply(Began("tiny", "float32", "a machine", cells))
    for seed in range(cells):
        made.apply(cell(0.5, seed, correct=0.5, brier=0.25))
    made.apply(RunEnded(0, "finished"))
    return made


@pytest.fixture
def store(tmp_path: Path) -> NamedStore[TuningReport]:
    return NamedStore(tmp_path / "sweeps.sqlite", SWEEPS)


def test_a_saved_sweep_comes_back_whole(store: NamedStore[TuningReport]) -> None:
    saved = store.save(" coins ", report())
    assert [one.name for one in store.all()] == ["coins"]
    again, found = NamedStore(store.path, SWEEPS).load(saved.id)
    assert again == saved
    assert dumps(found) == dumps(report())


def test_rename_delete_and_undo(store: NamedStore[TuningReport]) -> None:
    one, two = store.save("one", report(1)), store.save("two", report(2))
    store.rename(one.id, "first")
    store.delete(two.id)
    assert [sweep.name for sweep in store.all()] == ["first"]
    with pytest.raises(StoreError, match=r"this sweep is not saved on this server"):
        store.load(two.id)
    store.restore(two.id)
    assert len(store.load(two.id)[1].cells) == 2


def test_limits_speak_of_sweeps(store: NamedStore[TuningReport]) -> None:
    size = store.save("one", report()).size
    with pytest.raises(StoreError, match=r"the store contains 1 sweep of .*; at most 1 of"):
        NamedStore(store.path, replace(SWEEPS, most=1)).save("two", report())
    with pytest.raises(StoreError, match=r"the sweep takes .* Sweep fewer values"):
        NamedStore(store.path, replace(SWEEPS, largest=size - 1)).save("two", report())


def test_a_sweep_that_has_not_begun_is_not_saved(store: NamedStore[TuningReport]) -> None:
    with pytest.raises(RecordError, match="has not started"):
        store.save("none", TuningReport())
    assert not store.path.exists()


def test_a_damaged_sweep_costs_only_itself(store: NamedStore[TuningReport]) -> None:
    broken, whole = store.save("broken", report()), store.save("whole", report())
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE sweeps SET file = ? WHERE id = ?", (b"no sweep", broken.id))
        db.commit()
    with pytest.raises(RecordError, match="the saved sweep “broken” cannot be read"):
        store.load(broken.id)
    assert len(store.load(whole.id)[1].cells) == 3


def test_a_damaged_file_is_explained(store: NamedStore[TuningReport]) -> None:
    store.save("one", report())
    data = store.path.read_bytes()
    store.path.write_bytes(data[:4096])
    with pytest.raises(StoreError, match=r"the file of saved sweeps .* is damaged .* Move it"):
        store.all()


def test_runs_and_sweeps_do_not_take_each_others_files(
    store: NamedStore[TuningReport], tmp_path: Path
) -> None:
    store.save("one", report())
    with pytest.raises(StoreError, match="is not a store of saved runs; it was left unchanged"):
        NamedStore(store.path, RUNS).all()
    runs = NamedStore(tmp_path / "runs.sqlite", RUNS)
    runs.save("one", EVENTS)
    with pytest.raises(StoreError, match="is not a store of saved sweeps; it was left unchanged"):
        NamedStore(runs.path, SWEEPS).save("one", report())
    assert len(store.all()) == len(runs.all()) == 1


@pytest.mark.parametrize(
    ("value", "file"),
    [("off", None), ("/a/my.sqlite", "my-sweeps.sqlite"), ("/a/kept", "kept-sweeps.sqlite")],
)
def test_the_file_lies_beside_that_of_the_runs(
    monkeypatch: pytest.MonkeyPatch, value: str, file: str | None
) -> None:
    monkeypatch.setenv("EAB_STORE", value)
    found, runs = default_sweep_store(), default_store()
    assert (found and found.path) == (runs and runs.path.with_name(str(file)))


def test_a_public_server_saves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "current", lambda: rules.PUBLIC)
    assert default_sweep_store() is None
