"""Saved runs and saved sweeps: round trips, several sessions, limits, and files that are damaged,
foreign or newer. Both kinds are stored in the same way, each in its own file.
"""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cells import cell, plan
from made_runs import bundled
from msgspec import structs

from app.server import rules
from app.server.store import RUNS, SWEEPS, NamedStore, default_store, default_sweep_store
from eab.errors import RecordError, StoreError
from eab.labs.tuning.report import TuningReport, dumps, sweep_began
from eab.run.events import RunEnded

EVENTS = tuple(bundled("coin"))
Store = NamedStore[Any]


def report(cells: int = 3) -> TuningReport:
    began = sweep_began("tiny", "float32", "a machine", plan(cells))
    made = [cell(0.5, seed, correct=0.5, brier=0.25) for seed in range(cells)]
    return TuningReport().collect([began, *made, RunEnded(0, "finished")])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return NamedStore(tmp_path / "deep" / "runs.sqlite", RUNS)


def kept(store: Store, id: str) -> Any:
    """The content saved under this id, in a form that can be compared."""
    found = store.load(id)[1]
    return dumps(found) if isinstance(found, TuningReport) else tuple(found)


@pytest.mark.parametrize("kind", [RUNS, SWEEPS], ids=["runs", "sweeps"])
def test_saved_content_comes_back_whole_and_is_renamed_and_deleted(
    tmp_path: Path, kind: Any
) -> None:
    store: Store = NamedStore(tmp_path / "deep" / "kept.sqlite", kind)
    assert store.all() == []
    data, whole = (EVENTS, EVENTS) if kind is RUNS else (report(), dumps(report()))
    ids = [store.save(name, data).id for name in ("  my name ", "two", "two")]
    assert [one.id for one in store.all()] == ids[::-1], "the newest first; names may be equal"
    assert store.all()[-1].name == "my name"
    again: Store = NamedStore(store.path, kind)
    assert again.load(ids[0])[0] == store.all()[-1]
    assert kept(again, ids[0]) == whole
    store.rename(ids[0], "first")
    store.delete(ids[1])
    assert [one.name for one in store.all()] == ["two", "first"]
    for act in (store.load, store.delete, lambda id: store.rename(id, "x")):
        with pytest.raises(StoreError, match=r"is not saved on this server|somebody deleted it"):
            act(ids[1])


def test_what_an_older_program_marked_as_deleted_stays_deleted(store: Store) -> None:
    gone, kept_one = store.save("gone", EVENTS), store.save("kept", EVENTS)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE runs SET deleted_at = saved_at WHERE id = ?", (gone.id,))
        db.commit()
    assert store.all() == [kept_one]
    for act in (store.load, store.delete):
        with pytest.raises(StoreError):
            act(gone.id)


@pytest.mark.parametrize("bound", ["most", "most_bytes"])
def test_a_full_store_refuses_to_save_and_says_why(store: Store, bound: str) -> None:
    first = store.save("one", EVENTS)
    bounds = {"most": 2, "most_bytes": 2 * first.size}
    store = NamedStore(store.path, replace(RUNS, **{bound: bounds[bound]}))
    store.save("two", EVENTS)
    with pytest.raises(StoreError, match="Delete some"):
        store.save("three", EVENTS)
    assert len(store.all()) == 2
    store.delete(first.id)
    store.save("three", EVENTS)


def test_several_sessions_can_save_simultaneously(store: Store) -> None:
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


def _another_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE accounts (name TEXT)")


def _sweeps(path: Path) -> None:
    NamedStore(path, SWEEPS).save("one", report())


def _version(number: int, path: Path) -> None:
    NamedStore(path, RUNS).save("one", EVENTS)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {number}")


@pytest.mark.parametrize(
    ("kind", "write", "why"),
    [
        (RUNS, _another_table, "is not a store of saved runs; it was left unchanged"),
        (RUNS, _sweeps, "is not a store of saved runs; it was left unchanged"),
        (SWEEPS, partial(_version, 2), "is not a store of saved sweeps; it was left unchanged"),
        (RUNS, partial(_version, 1), "version 1; this program reads version 2"),
        (RUNS, partial(_version, 3), "version 3; this program reads version 2"),
        (RUNS, lambda path: path.write_bytes(b"somebody's notes" * 300), "is damaged"),
    ],
)
def test_a_file_that_is_not_a_store_is_left_unchanged(
    tmp_path: Path, kind: Any, write: Callable[[Path], object], why: str
) -> None:
    store: Store = NamedStore(tmp_path / "kept.sqlite", kind)
    write(store.path)
    before = store.path.read_bytes()
    for act in (
        store.all,
        lambda: store.load("x"),
        lambda: store.save("one", EVENTS if kind is RUNS else report()),
        lambda: store.delete("x"),
    ):
        with pytest.raises(StoreError, match=why):
            act()
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "kept", "cut"),
    [(RUNS, 4096, True), (RUNS, 5000, False), (RUNS, 20_000, True), (SWEEPS, 4096, False)],
)
def test_a_damaged_store_is_left_unchanged_and_replaced_once_it_is_moved_away(
    tmp_path: Path, kind: Any, kept: int, cut: bool
) -> None:
    store: Store = NamedStore(tmp_path / "kept.sqlite", kind)
    data = EVENTS if kind is RUNS else report()
    for number in range(5):
        store.save(str(number), data)
    whole = store.path.read_bytes()
    damaged = whole[:kept] + (b"" if cut else bytes(len(whole) - kept))
    store.path.write_bytes(damaged)

    def use_everything() -> None:
        for one in store.all():
            store.load(one.id)
        store.save("one more", data)

    with pytest.raises(StoreError, match=r"is damaged .* Move it .*a new one is then created"):
        use_everything()
    assert store.path.read_bytes() == damaged
    store.path.rename(store.path.with_name("moved.sqlite"))
    saved = store.save("again", data)
    assert store.all() == [saved]


@pytest.mark.parametrize(
    ("kind", "table", "changes", "why"),
    [
        (RUNS, "runs", "name = X'ff00', size = 'x', file = 'text'", "is not a run file"),
        (RUNS, "runs", "file = 'no run'", "the saved run “broken” is not a run file"),
        (SWEEPS, "sweeps", "file = X'ff00'", "the saved sweep “broken” cannot be read"),
    ],
)
def test_a_broken_entry_does_not_affect_the_others(
    tmp_path: Path, kind: Any, table: str, changes: str, why: str
) -> None:
    store: Store = NamedStore(tmp_path / "kept.sqlite", kind)
    data = EVENTS if kind is RUNS else report()
    broken, whole = store.save("broken", data), store.save("whole", data)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"UPDATE {table} SET {changes} WHERE id = ?", (broken.id,))
        db.commit()
    assert {one.id for one in store.all()} == {broken.id, whole.id}
    with pytest.raises(RecordError, match=why):
        store.load(broken.id)
    assert kept(store, whole.id)


def test_sizes_are_those_of_the_stored_files(store: Store) -> None:
    prompt = "w" * 150_000
    events = [structs.replace(EVENTS[0], prompt=prompt), *EVENTS[1:]]  # type: ignore[type-var]
    saved = [store.save(str(number), events) for number in range(10)]
    assert store.path.stat().st_size < 2 * sum(run.size for run in saved) + 2**16
    assert prompt not in repr(store.all())


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = NamedStore(tmp_path / "file" / "runs.sqlite", RUNS)
    assert store.all() == []
    with pytest.raises(StoreError, match="cannot be written"):
        store.save("one", EVENTS)
    with pytest.raises(StoreError, match="cannot be read"):
        NamedStore(tmp_path, RUNS).all()


@pytest.mark.parametrize("existing", [True, False])
def test_a_save_that_breaks_off_leaves_the_store_as_it_was(store: Store, existing: bool) -> None:
    before = [store.save("one", EVENTS)] if existing else []
    with suppress(KeyboardInterrupt), store.writing() as db:
        db.execute("INSERT INTO runs VALUES ('x', 'two', 'now', 1, NULL, 'half a file')")
        raise KeyboardInterrupt
    assert store.all() == before
    assert [store.load(one.id)[1] for one in before] == [list(EVENTS)] * len(before)


def test_a_full_disk_is_explained_and_nothing_is_lost(store: Store) -> None:
    saved = store.save("one", EVENTS)
    with store.reading() as db:
        [[pages]] = db.execute("PRAGMA page_count")
    connect = sqlite3.connect

    def on_a_full_disk(*given: Any, **more: Any) -> sqlite3.Connection:
        db = connect(*given, **more)
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", on_a_full_disk)
        with pytest.raises(StoreError, match="cannot be written: database or disk is full"):
            store.save("two", EVENTS)
        store.delete(saved.id)
        again = store.save("again", EVENTS)
    assert store.all() == [again]


def test_a_first_save_that_failed_leaves_an_empty_store(store: Store) -> None:
    with pytest.raises(StoreError, match="at most 0"):
        NamedStore(store.path, replace(RUNS, most=0)).save("one", EVENTS)
    assert store.all() == []
    saved = store.save("one", EVENTS)
    assert store.all() == [saved]


@pytest.mark.parametrize(
    ("value", "file", "sweeps"),
    [
        ("off", None, None),
        ("OFF", None, None),
        ("~/my.sqlite", Path.home() / "my.sqlite", "my-sweeps.sqlite"),
        ("/a/kept", Path("/a/kept"), "kept-sweeps.sqlite"),
        ("~nobody-of-this-name/x", Path("~nobody-of-this-name/x"), "x-sweeps.sqlite"),
    ],
)
def test_the_variable_names_the_file_or_switches_it_off(
    monkeypatch: pytest.MonkeyPatch, value: str, file: Path | None, sweeps: str | None
) -> None:
    monkeypatch.setenv("EAB_STORE", value)
    runs, beside = default_store(), default_sweep_store()
    assert (runs and runs.path) == file
    assert (beside and beside.path) == (file and file.with_name(str(sweeps)))


def test_without_the_variable_the_store_is_in_the_users_data_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("EAB_STORE")
    found = default_store()
    assert found.path.parts[-2:] == ("eab-explorer", "runs.sqlite")


def test_the_limits_of_a_sweep_store_are_explained_in_terms_of_sweeps(tmp_path: Path) -> None:
    store: Store = NamedStore(tmp_path / "sweeps.sqlite", SWEEPS)
    with pytest.raises(RecordError, match="has not started"):
        store.save("none", TuningReport())
    assert not store.path.exists()
    size = store.save("one", report()).size
    for change, why in (
        ({"most": 1}, r"the store contains 1 sweep of .*; at most 1 of"),
        ({"largest": size - 1}, r"the sweep takes .* Sweep fewer values"),
    ):
        with pytest.raises(StoreError, match=why):
            NamedStore(store.path, replace(SWEEPS, **change)).save("two", report())


def test_a_public_server_saves_no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "current", lambda: rules.PUBLIC)
    assert default_sweep_store() is None
