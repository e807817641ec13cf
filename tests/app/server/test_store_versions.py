"""The saved runs of an older program: they can be read as they are, and the first change brings the
file up to date, as a whole or not at all.
"""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from saving_process import EVENTS, FILE, found

from app.server import store_file
from app.server.store import Store
from eab.errors import StoreError

FIRST_VERSION = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, saved_at TEXT NOT NULL, prompt TEXT NOT NULL,
    size INTEGER NOT NULL, deleted_at TEXT, file BLOB NOT NULL
)"""


@pytest.fixture
def old(tmp_path: Path) -> Store:
    """A store of version 1: three runs, one of them deleted, and a prompt as it once was kept."""
    store = Store(tmp_path / "runs.sqlite")
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(FIRST_VERSION)
        db.execute(f"PRAGMA application_id = {0x45414273}")
        db.execute("PRAGMA user_version = 1")
        add(db, "b", "2026-01-02T00:00:00.000001+00:00", prompt="Once upon a time")
        add(db, "a", "2026-01-03T00:00:00.000001+00:00")
        add(db, "c", "2026-01-04T00:00:00.000001+00:00", deleted_at="2026-01-05")
        db.commit()
    return store


def add(
    db: sqlite3.Connection, name: str, at: str, prompt: str = "", deleted_at: str | None = None
) -> None:
    """Save a run as the older program did; its id is its name."""
    file = FILE.read_bytes()
    values = (name, name, at, prompt, len(file), deleted_at, file)
    db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def columns(store: Store) -> list[str]:
    with closing(sqlite3.connect(store.path)) as db:
        return [row[1] for row in db.execute("PRAGMA table_info(runs)")]


def test_an_older_store_is_read_as_it_is(old: Store) -> None:
    before = old.path.read_bytes()
    assert [run.name for run in old.all()] == ["a", "b"]
    assert old.load("b")[1] == EVENTS
    with pytest.raises(StoreError, match="not saved here"):
        old.load("c")
    assert old.path.read_bytes() == before


def test_the_first_change_brings_it_up_to_date_with_every_run(old: Store) -> None:
    runs = old.all()
    old.rename("b", "first")
    assert columns(old) == columns(new_store(old.path.with_name("new.sqlite")))
    assert "prompt" not in columns(old)
    assert [run.name for run in old.all()] == ["a", "first"]
    assert [(run.id, run.saved_at, run.size) for run in old.all()] == [
        (run.id, run.saved_at, run.size) for run in runs
    ]
    assert all(old.load(run.id)[1] == EVENTS for run in runs)
    old.restore("c")
    assert [run.name for run in old.all()] == ["c", "a", "first"]


def new_store(path: Path) -> Store:
    store = Store(path)
    store.save("one", EVENTS)
    return store


def test_a_change_that_is_refused_leaves_an_older_store_as_it_is(old: Store) -> None:
    before = old.path.read_bytes()
    with pytest.raises(StoreError, match="somebody deleted it"):
        old.delete("c")
    assert old.path.read_bytes() == before


def test_a_step_that_fails_leaves_an_older_store_as_it_is(
    old: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old.path.read_bytes()
    *steps, last = store_file._STEPS
    monkeypatch.setattr(store_file, "_STEPS", (*steps, (*last, "DROP TABLE none")))
    with pytest.raises(StoreError, match="cannot be written: no such table: none"):
        old.save("one", EVENTS)
    assert old.path.read_bytes() == before
    assert [run.name for run in old.all()] == ["a", "b"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
def test_a_process_that_is_killed_while_it_brings_a_store_up_to_date_leaves_it_whole(
    old: Store,
) -> None:
    with closing(sqlite3.connect(old.path)) as db:
        for number in range(150):  # more than SQLite keeps in memory, so that it writes at once
            add(db, f"more {number}", "2026-01-06T00:00:00.000001+00:00")
        db.commit()
    result = found("killed_while_updating", old.path.parent)
    assert [one["runs"] for one in result["seen"]] == [152] * len(result["seen"])
    assert {one["version"] for one in result["seen"]} == {1}
    assert any(one["torn"] for one in result["seen"])
    assert (result["lost"], result["version"]) == ([], 2)
