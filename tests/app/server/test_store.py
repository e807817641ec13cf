"""Saved runs: round trips, several sessions, limits, and files that are damaged, foreign or newer."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from app.server import bundled_runs
from app.server.store import MAX_NAME, Store, default_store
from eab.errors import RecordError, StoreError

EVENTS = bundled_runs.events_of(bundled_runs.recordings()[1])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "deep" / "runs.sqlite")


def test_a_saved_run_comes_back_whole(store: Store) -> None:
    assert store.all() == []
    saved = store.save("  my run ", EVENTS)
    assert store.all() == [saved]
    assert (saved.name, saved.prompt) == ("my run", EVENTS[0].prompt)  # type: ignore[union-attr]
    again, events = Store(store.path).load(saved.id)
    assert again == saved
    assert tuple(events) == EVENTS


def test_the_newest_comes_first_and_names_may_be_equal(store: Store) -> None:
    ids = [store.save("run", EVENTS).id for _ in range(3)]
    assert [run.id for run in store.all()] == ids[::-1]


def test_rename_delete_and_undo(store: Store) -> None:
    one, two = store.save("one", EVENTS), store.save("two", EVENTS)
    store.rename(one.id, "first")
    store.delete(two.id)
    assert [run.name for run in store.all()] == ["first"]
    with pytest.raises(StoreError, match="not saved here"):
        store.load(two.id)
    store.restore(two.id)
    assert tuple(store.load(two.id)[1]) == EVENTS


def test_what_another_user_deleted_is_explained(store: Store) -> None:
    run = store.save("one", EVENTS)
    store.delete(run.id)
    for act in (
        lambda: store.delete(run.id),
        lambda: store.rename(run.id, "x"),
        lambda: store.restore("no such id"),
    ):
        with pytest.raises(StoreError, match="somebody deleted it"):
            act()


def test_only_the_last_deleted_runs_can_be_restored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.store.MAX_DELETED", 2)
    runs = [store.save(str(number), EVENTS) for number in range(4)]
    for run in runs:
        store.delete(run.id)
    with pytest.raises(StoreError):
        store.restore(runs[0].id)
    store.restore(runs[3].id)
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (2,)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the name is empty; give 1 to 80 characters"),
        ("   ", "the name is empty"),
        ("x" * (MAX_NAME + 1), "the name has 81 characters; at most 80 are allowed"),
        ("two\nlines", "line breaks or invisible characters"),
        ("\u202eback", "line breaks or invisible characters"),
    ],
)
def test_names_are_checked(store: Store, name: str, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        store.save(name, EVENTS)
    assert not store.path.exists()


@pytest.mark.parametrize("bound", ["MAX_RUNS", "MAX_BYTES"])
def test_the_store_is_bounded_and_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    first = store.save("one", EVENTS)
    monkeypatch.setattr(
        f"app.server.store.{bound}", {"MAX_RUNS": 2, "MAX_BYTES": 2 * first.size}[bound]
    )
    store.save("two", EVENTS)
    with pytest.raises(StoreError, match="Delete some"):
        store.save("three", EVENTS)
    assert len(store.all()) == 2
    store.delete(first.id)
    store.save("three", EVENTS)


def test_several_sessions_may_save_at_once(store: Store) -> None:
    problems: list[Exception] = []

    def save_some(name: str) -> None:
        try:
            for _ in range(5):
                Store(store.path).save(name, EVENTS)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=save_some, args=(str(number),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(store.all()) == 30


def test_another_process_sees_what_is_saved(store: Store) -> None:
    saved = store.save("one", EVENTS)
    code = f"from app.server.store import default_store; print([run.id for run in default_store().all()] == [{saved.id!r}])"
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={"EAB_STORE": str(store.path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert process.stdout.strip() == "True"


def test_a_file_of_something_else_is_left_unchanged(store: Store) -> None:
    store.path.parent.mkdir()
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("CREATE TABLE accounts (name TEXT)")
    _refuses_and_leaves(store, "no store of saved runs")


def test_a_store_of_a_newer_program_is_left_unchanged(store: Store) -> None:
    store.save("one", EVENTS)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("PRAGMA user_version = 2")
    _refuses_and_leaves(store, "version 2; this program reads version 1")


def test_a_file_that_is_no_database_is_left_unchanged(store: Store) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(b"this is no database, but somebody's notes" * 100)
    _refuses_and_leaves(store, "is damaged")


def test_a_damaged_store_says_so_and_keeps_every_byte(store: Store) -> None:
    for number in range(5):
        store.save(str(number), EVENTS)
    data = bytearray(store.path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)  # every page after the first is lost
    store.path.write_bytes(data)
    _refuses_and_leaves(store, "is damaged")


def _refuses_and_leaves(store: Store, why: str) -> None:
    before = store.path.read_bytes()
    for act in (
        store.all,
        lambda: store.load("x"),
        lambda: store.save("one", EVENTS),
        lambda: store.delete("x"),
    ):
        with pytest.raises(StoreError, match=why):
            act()
    assert store.path.read_bytes() == before


def test_a_saved_run_with_broken_bytes_costs_only_itself(store: Store) -> None:
    broken, whole = store.save("broken", EVENTS), store.save("whole", EVENTS)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE runs SET file = ? WHERE id = ?", (b"no run", broken.id))
        db.commit()
    with pytest.raises(RecordError, match="the saved run “broken” is not a run file"):
        store.load(broken.id)
    assert tuple(store.load(whole.id)[1]) == EVENTS


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "runs.sqlite")
    assert store.all() == []
    with pytest.raises(StoreError, match="cannot be written"):
        store.save("one", EVENTS)
    with pytest.raises(StoreError, match="cannot be read"):
        Store(tmp_path).all()


def test_a_first_save_that_failed_leaves_an_empty_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.store.MAX_RUNS", 0)
    with pytest.raises(StoreError, match="at most 0"):
        store.save("one", EVENTS)
    assert store.all() == []
    monkeypatch.setattr("app.server.store.MAX_RUNS", 1)
    saved = store.save("one", EVENTS)
    assert store.all() == [saved]


@pytest.mark.parametrize(
    ("value", "file"), [("off", None), ("OFF", None), ("~/my.sqlite", Path.home() / "my.sqlite")]
)
def test_the_variable_names_the_file_or_switches_it_off(
    monkeypatch: pytest.MonkeyPatch, value: str, file: Path | None
) -> None:
    monkeypatch.setenv("EAB_STORE", value)
    found = default_store()
    assert (found.path if found else None) == file


def test_without_the_variable_the_store_is_in_the_users_data_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("EAB_STORE")
    found = default_store()
    assert found is not None
    assert found.path.name == "runs.sqlite"
    assert found.path.parent.name == "eab-explorer"
