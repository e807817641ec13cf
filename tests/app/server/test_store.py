"""Saved runs: round trips, several sessions, limits, and files that are damaged, foreign or newer."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.server.named_store import MAX_NAME, NamedStore
from app.server.store import RUNS, RunStore, default_store
from eab.errors import RecordError, StoreError
from eab.lessons import bundled_runs

EVENTS = bundled_runs.events_of(bundled_runs.recordings()[1])


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return NamedStore(tmp_path / "deep" / "runs.sqlite", RUNS)


def test_a_saved_run_comes_back_whole(store: RunStore) -> None:
    assert store.all() == []
    saved = store.save("  my run ", EVENTS)
    assert store.all() == [saved]
    assert saved.name == "my run"
    again, events = NamedStore(store.path, RUNS).load(saved.id)
    assert again == saved
    assert tuple(events) == EVENTS


def test_the_newest_comes_first_and_names_may_be_equal(store: RunStore) -> None:
    ids = [store.save("run", EVENTS).id for _ in range(3)]
    assert [run.id for run in store.all()] == ids[::-1]


def test_rename_delete_and_undo(store: RunStore) -> None:
    one, two = store.save("one", EVENTS), store.save("two", EVENTS)
    store.rename(one.id, "first")
    store.delete(two.id)
    assert [run.name for run in store.all()] == ["first"]
    with pytest.raises(StoreError, match="not saved on this server"):
        store.load(two.id)
    store.restore(two.id)
    assert tuple(store.load(two.id)[1]) == EVENTS


def test_what_another_user_deleted_is_explained(store: RunStore) -> None:
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
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.named_store.MAX_DELETED", 2)
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
def test_names_are_checked(store: RunStore, name: str, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        store.save(name, EVENTS)
    assert not store.path.exists()


@pytest.mark.parametrize("bound", ["most", "most_bytes"])
def test_the_store_is_bounded_and_says_so(store: RunStore, bound: str) -> None:
    first = store.save("one", EVENTS)
    bounds = {"most": 2, "most_bytes": 2 * first.size}
    store = NamedStore(store.path, replace(RUNS, **{bound: bounds[bound]}))
    store.save("two", EVENTS)
    with pytest.raises(StoreError, match="Delete some"):
        store.save("three", EVENTS)
    assert len(store.all()) == 2
    store.delete(first.id)
    store.save("three", EVENTS)


def test_several_sessions_may_save_at_once(store: RunStore) -> None:
    problems: list[Exception] = []

    def save_some(name: str) -> None:
        try:
            for _ in range(5):
                NamedStore(store.path, RUNS).save(name, EVENTS)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=save_some, args=(str(number),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(store.all()) == 30


def test_another_process_sees_what_is_saved(store: RunStore) -> None:
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


def test_a_file_of_something_else_is_left_unchanged(store: RunStore) -> None:
    store.path.parent.mkdir()
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("CREATE TABLE accounts (name TEXT)")
    _refuses_and_leaves(store, "not a store of saved runs")


@pytest.mark.parametrize("version", [1, 3])
def test_a_store_of_another_version_is_left_unchanged(store: RunStore, version: int) -> None:
    store.save("one", EVENTS)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    _refuses_and_leaves(store, f"version {version}; this program reads version 2")


def test_a_file_that_is_no_database_is_left_unchanged(store: RunStore) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(b"this is no database, but somebody's notes" * 100)
    _refuses_and_leaves(store, "is damaged")


def use_everything(store: RunStore) -> None:
    for run in store.all():
        store.load(run.id)
    store.save("one more", EVENTS)


@pytest.mark.parametrize("kept", [4096, 5000, 20_000])
@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_store_is_left_unchanged_and_a_new_one_begins_once_it_is_moved_away(
    store: RunStore, kept: int, cut: bool
) -> None:
    for number in range(5):
        store.save(str(number), EVENTS)
    data = store.path.read_bytes()
    damaged = data[:kept] + (b"" if cut else bytes(len(data) - kept))
    store.path.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"is damaged .* Move it .*a new one begins"):
        use_everything(store)
    assert store.path.read_bytes() == damaged
    store.path.rename(store.path.with_name("moved.sqlite"))
    saved = store.save("again", EVENTS)
    assert store.all() == [saved]


def test_rows_of_wrong_types_cost_only_themselves(store: RunStore) -> None:
    broken, whole = store.save("broken", EVENTS), store.save("whole", EVENTS)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(
            "UPDATE runs SET name = X'ff00', size = 'x', file = 'text' WHERE id = ?", (broken.id,)
        )
        db.commit()
    assert {run.id for run in store.all()} == {broken.id, whole.id}
    with pytest.raises(RecordError, match="is not a run file"):
        store.load(broken.id)
    assert tuple(store.load(whole.id)[1]) == EVENTS


def test_what_counts_is_what_the_file_holds(store: RunStore) -> None:
    prompt = "w" * 150_000
    events = [replace(EVENTS[0], prompt=prompt), *EVENTS[1:]]  # type: ignore[type-var]
    saved = [store.save(str(number), events) for number in range(10)]
    assert store.path.stat().st_size < 2 * sum(run.size for run in saved) + 2**16
    assert prompt not in repr(store.all())


def test_undo_does_not_go_beyond_the_limit(store: RunStore) -> None:
    one = store.save("one", EVENTS)
    store.delete(one.id)
    store = NamedStore(store.path, replace(RUNS, most=1))
    two = store.save("two", EVENTS)
    with pytest.raises(StoreError, match="Delete some"):
        store.restore(one.id)
    store.delete(two.id)
    store.restore(one.id)
    assert store.all() == [one]


def _refuses_and_leaves(store: RunStore, why: str) -> None:
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


def test_a_saved_run_with_broken_bytes_costs_only_itself(store: RunStore) -> None:
    broken, whole = store.save("broken", EVENTS), store.save("whole", EVENTS)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE runs SET file = ? WHERE id = ?", (b"no run", broken.id))
        db.commit()
    with pytest.raises(RecordError, match="the saved run “broken” is not a run file"):
        store.load(broken.id)
    assert tuple(store.load(whole.id)[1]) == EVENTS


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = NamedStore(tmp_path / "file" / "runs.sqlite", RUNS)
    assert store.all() == []
    with pytest.raises(StoreError, match="cannot be written"):
        store.save("one", EVENTS)
    with pytest.raises(StoreError, match="cannot be read"):
        NamedStore(tmp_path, RUNS).all()


def test_a_first_save_that_failed_leaves_an_empty_store(store: RunStore) -> None:
    with pytest.raises(StoreError, match="at most 0"):
        NamedStore(store.path, replace(RUNS, most=0)).save("one", EVENTS)
    assert store.all() == []
    saved = store.save("one", EVENTS)
    assert store.all() == [saved]


@pytest.mark.parametrize(
    ("value", "file"),
    [
        ("off", None),
        ("OFF", None),
        ("~/my.sqlite", Path.home() / "my.sqlite"),
        ("~nobody-of-this-name/x", Path("~nobody-of-this-name/x")),
    ],
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
