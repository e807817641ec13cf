"""Saved runs: one SQLite file on the machine that serves the page.

The environment variable EAB_STORE names the file, or is `off`. Each operation is a transaction of
its own, so several sessions, and several servers, may use one file. A file that is damaged, or was
not made by this program, is left unchanged. Knows nothing of Streamlit.
"""

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from platformdirs import user_data_path

from eab import record
from eab.errors import StoreError
from eab.events import Event, RunStarted
from eab.formatting import human_bytes

VARIABLE: Final = "EAB_STORE"
OFF: Final = "off"
MAX_RUNS: Final = 200
MAX_BYTES: Final = 256 * 2**20
MAX_NAME: Final = 80  # characters
MAX_DELETED: Final = 10  # deleted runs that can still be restored
_APPLICATION_ID: Final = 0x45414273  # "EABs"
_VERSION: Final = 1
_TIMEOUT: Final = 5.0  # seconds to wait for another session's transaction
_SCHEMA: Final = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, saved_at TEXT NOT NULL, prompt TEXT NOT NULL,
    size INTEGER NOT NULL, deleted_at TEXT, file BLOB NOT NULL
)"""
_DAMAGED: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A saved run without its events.

    Attributes:
        id: Its id in the store.
        name: Its name.
        saved_at: When it was saved: UTC, ISO 8601.
        prompt: Its prompt.
        size: Bytes of its run file.
    """

    id: str
    name: str
    saved_at: str
    prompt: str
    size: int


def default_store() -> "Store | None":
    """The store that EAB_STORE names, or the one in the user's data folder.

    Returns:
        None if saved runs are switched off.
    """
    named = os.environ.get(VARIABLE, "").strip()
    if named.lower() == OFF:
        return None
    return Store(
        Path(named).expanduser()
        if named
        else user_data_path("eab-explorer", appauthor=False) / "runs.sqlite"
    )


class Store:
    """Runs in the record format, by id.

    All methods raise StoreError if the file cannot be read or written.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[SavedRun]:
        """All saved runs, the newest first."""
        if self._empty:
            return []
        with self._reading() as db:
            rows = db.execute(
                "SELECT id, name, saved_at, prompt, size FROM runs "
                "WHERE deleted_at IS NULL ORDER BY saved_at DESC, id"
            ).fetchall()
        return [SavedRun(*row) for row in rows]

    def save(self, name: str, events: Iterable[Event]) -> SavedRun:
        """Save a run under this name.

        Raises:
            StoreError: The name is not allowed, the run is too large, or the store is full.
            RecordError: The run cannot be written as a run file.
        """
        events = list(events)
        file = record.dumps(events)
        prompt = next((event.prompt for event in events if isinstance(event, RunStarted)), "")
        saved = SavedRun(secrets.token_urlsafe(9), _checked(name), _now(), prompt, len(file))
        if len(file) > record.MAX_FILE_BYTES:
            raise StoreError(
                f"the run takes {human_bytes(len(file))}; at most {_LARGEST} can be saved. "
                "Run it shorter"
            )
        with self._writing() as db:
            count, size = db.execute(
                "SELECT count(*), coalesce(sum(size), 0) FROM runs WHERE deleted_at IS NULL"
            ).fetchone()
            if count >= MAX_RUNS or size + len(file) > MAX_BYTES:
                raise StoreError(
                    f"{count} runs of {human_bytes(size)} in all are saved; at most {MAX_RUNS} "
                    f"of {_ROOM} have room. Delete some, or download this one as a run file"
                )
            columns = (saved.id, saved.name, saved.saved_at, saved.prompt, saved.size, file)
            db.execute(
                "INSERT INTO runs (id, name, saved_at, prompt, size, file) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                columns,
            )
        return saved

    def load(self, run_id: str) -> tuple[SavedRun, list[Event]]:
        """A saved run and its events.

        Raises:
            StoreError: There is no such run.
            RecordError: Its bytes are no run file.
        """
        row = None
        if not self._empty:
            with self._reading() as db:
                row = db.execute(
                    "SELECT id, name, saved_at, prompt, size, file FROM runs "
                    "WHERE id = ? AND deleted_at IS NULL",
                    (run_id,),
                ).fetchone()
        if row is None:
            raise StoreError("this run is not saved here (any more); choose another one")
        return SavedRun(*row[:5]), record.loads(row[5], f"the saved run “{row[1]}”")

    def rename(self, run_id: str, name: str) -> str:
        """Give a saved run another name; returns it without spaces around it."""
        name = _checked(name)
        self._change("UPDATE runs SET name = ? WHERE id = ? AND deleted_at IS NULL", name, run_id)
        return name

    def delete(self, run_id: str) -> None:
        """Delete a run; the last MAX_DELETED deleted runs can be restored."""
        self._change(
            "UPDATE runs SET deleted_at = ? WHERE id = ? AND deleted_at IS NULL", _now(), run_id
        )
        with self._writing() as db:
            db.execute(
                "DELETE FROM runs WHERE deleted_at IS NOT NULL AND id NOT IN "
                "(SELECT id FROM runs WHERE deleted_at IS NOT NULL "
                "ORDER BY deleted_at DESC, id LIMIT ?)",
                (MAX_DELETED,),
            )

    def restore(self, run_id: str) -> None:
        """Undo a deletion."""
        self._change(
            "UPDATE runs SET deleted_at = NULL WHERE id = ? AND deleted_at IS NOT NULL", run_id
        )

    def _change(self, statement: str, *values: str) -> None:
        with self._writing() as db:
            if db.execute(statement, values).rowcount != 1:
                raise StoreError("this run is not saved here any more: somebody deleted it")

    @property
    def _empty(self) -> bool:
        """Whether nothing was ever saved. A first save that failed may leave an empty file."""
        with self._explained("read"):
            return not self.path.exists() or self.path.stat().st_size == 0

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._explained("read"), closing(sqlite3.connect(self.path, timeout=_TIMEOUT)) as db:
            self._check(db)
            yield db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that locks the file from its start; an exception rolls it back."""
        with self._explained("written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_TIMEOUT, isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    self._check(db, make=True)
                    yield db
                except BaseException:
                    db.rollback()
                    raise
                db.commit()

    def _check(self, db: sqlite3.Connection, make: bool = False) -> None:
        """Check that this program made the file; with `make`, an empty file becomes a store."""
        (owner,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if make and not (owner or version or tables):
            db.execute(_SCHEMA)
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {_VERSION}")
        elif owner != _APPLICATION_ID:
            raise StoreError(
                f"{self.path} is no store of saved runs; it was left unchanged. {_ELSEWHERE}"
            )
        elif version != _VERSION:
            raise StoreError(
                f"the saved runs in {self.path} have version {version}; this program reads version "
                f"{_VERSION}. They were left unchanged. {_ELSEWHERE}"
            )

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            if getattr(error, "sqlite_errorname", "") in _DAMAGED:
                raise StoreError(
                    f"the file of saved runs {self.path} is damaged ({error}); it was left "
                    f"unchanged. {_ELSEWHERE}"
                ) from error
            why = getattr(error, "strerror", None) or error
            raise StoreError(
                f"the saved runs in {self.path} cannot be {done}: {why}. {_ELSEWHERE}"
            ) from error


_LARGEST: Final = human_bytes(record.MAX_FILE_BYTES)
_ROOM: Final = human_bytes(MAX_BYTES)
_ELSEWHERE: Final = (
    f"Set {VARIABLE} to another file, or to {OFF}; runs can always be downloaded as files"
)


def _checked(name: str) -> str:
    """The name without spaces around it; StoreError if it is empty, too long or not printable."""
    name = name.strip()
    if not name:
        raise StoreError(f"the name is empty; give 1 to {MAX_NAME} characters")
    if len(name) > MAX_NAME:
        raise StoreError(
            f"the name has {len(name):,} characters; at most {MAX_NAME} are allowed. Shorten it"
        )
    if not name.isprintable():
        raise StoreError("the name has line breaks or invisible characters; type it on one line")
    return name


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
