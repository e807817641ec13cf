"""Saved runs: one SQLite file on the machine that serves the page.

The environment variable EAB_STORE names the file, or is `off`. Each operation is a transaction of
its own, so several sessions, and several servers, may use one file. A damaged store is set aside
under another name, and a new one begins; a file that this program did not make is left unchanged.
Knows nothing of Streamlit.
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

from app.server import rules
from eab import record
from eab.errors import StoreError
from eab.events import Event
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
# The prompt stands in the run file, where it is compressed; this column stays empty.
_SCHEMA: Final = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, saved_at TEXT NOT NULL, prompt TEXT NOT NULL,
    size INTEGER NOT NULL, deleted_at TEXT, file BLOB NOT NULL
)"""
_COLUMNS: Final = "id, CAST(name AS TEXT), CAST(saved_at AS TEXT), CAST(size AS INTEGER)"
_DAMAGED: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_MARK: Final = slice(68, 72)  # of the file's header: the application id


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A saved run without its events.

    Attributes:
        id: Its id in the store.
        name: Its name.
        saved_at: When it was saved: UTC, ISO 8601.
        size: Bytes of its run file.
    """

    id: str
    name: str
    saved_at: str
    size: int


def default_store() -> "Store | None":
    """The store that EAB_STORE names, or the one in the user's data folder.

    Returns:
        None if saved runs are switched off, by EAB_STORE=off or by the rules of the server.
    """
    named = os.environ.get(VARIABLE, "").strip()
    if named.lower() == OFF or not rules.current().save_runs:
        return None
    return Store(
        Path(os.path.expanduser(named))
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
                f"SELECT {_COLUMNS} FROM runs WHERE deleted_at IS NULL ORDER BY saved_at DESC, id"
            ).fetchall()
        return [SavedRun(*row) for row in rows]

    def save(self, name: str, events: Iterable[Event]) -> SavedRun:
        """Save a run under this name.

        Raises:
            StoreError: The name is not allowed, the run is too large, or the store is full.
            RecordError: The run cannot be written as a run file.
        """
        file = record.dumps(events)
        saved = SavedRun(secrets.token_urlsafe(9), _checked(name), _now(), len(file))
        if len(file) > record.MAX_FILE_BYTES:
            raise StoreError(
                f"the run takes {human_bytes(len(file))}; at most {_LARGEST} can be saved. "
                "Run it shorter"
            )
        with self._writing() as db:
            _check_room(db, len(file))
            columns = (saved.id, saved.name, saved.saved_at, saved.size, file)
            db.execute(
                "INSERT INTO runs (id, name, saved_at, prompt, size, file) "
                "VALUES (?, ?, ?, '', ?, ?)",
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
                    f"SELECT {_COLUMNS}, CAST(file AS BLOB) FROM runs "
                    "WHERE id = ? AND deleted_at IS NULL",
                    (run_id,),
                ).fetchone()
        if row is None:
            raise StoreError("this run is not saved here (any more); choose another one")
        return SavedRun(*row[:4]), record.loads(row[4], f"the saved run “{row[1]}”")

    def rename(self, run_id: str, name: str) -> str:
        """Give a saved run another name; returns it without spaces around it."""
        name = _checked(name)
        with self._writing() as db:
            _change(
                db, "UPDATE runs SET name = ? WHERE id = ? AND deleted_at IS NULL", name, run_id
            )
        return name

    def delete(self, run_id: str) -> None:
        """Delete a run; the last MAX_DELETED deleted runs can be restored."""
        with self._writing() as db:
            _change(
                db,
                "UPDATE runs SET deleted_at = ? WHERE id = ? AND deleted_at IS NULL",
                _now(),
                run_id,
            )
            db.execute(
                "DELETE FROM runs WHERE deleted_at IS NOT NULL AND id NOT IN "
                "(SELECT id FROM runs WHERE deleted_at IS NOT NULL "
                "ORDER BY deleted_at DESC, id LIMIT ?)",
                (MAX_DELETED,),
            )

    def restore(self, run_id: str) -> None:
        """Undo a deletion.

        Raises:
            StoreError: It was not deleted lately, or others have taken its room.
        """
        with self._writing() as db:
            found = db.execute("SELECT size FROM runs WHERE id = ?", (run_id,)).fetchone()
            _check_room(db, found[0] if found else 0)
            _change(
                db,
                "UPDATE runs SET deleted_at = NULL WHERE id = ? AND deleted_at IS NOT NULL",
                run_id,
            )

    @property
    def _empty(self) -> bool:
        """Whether nothing was ever saved. A first save that failed may leave an empty file."""
        with self._explained("read"):
            return not self.path.exists() or self.path.stat().st_size == 0

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._explained("read"), closing(sqlite3.connect(self.path, timeout=_TIMEOUT)) as db:
            self._check(db)
            db.text_factory = _readable
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
                raise StoreError(self._set_aside(error)) from error
            why = getattr(error, "strerror", None) or error
            raise StoreError(
                f"the saved runs in {self.path} cannot be {done}: {why}. {_ELSEWHERE}"
            ) from error

    def _set_aside(self, error: Exception) -> str:
        """Give a damaged store another name, so that the next run is saved in a new one.

        Returns:
            What was done, for the user.
        """
        said = f"the file of saved runs {self.path} is damaged ({error})"
        kept = self.path.with_name(f"{self.path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
        try:
            if not self._is_damaged_store():
                return f"{said}; it was left unchanged. {_ELSEWHERE}"
            journal = self.path.with_name(f"{self.path.name}-journal")
            if journal.exists():  # it would be rolled back into the new file
                journal.rename(kept.with_name(f"{kept.name}-journal"))
            self.path.rename(kept)
        except OSError as why:
            return f"{said} and cannot be set aside: {why.strerror}. {_ELSEWHERE}"
        return f"{said}. It was set aside as {kept}, and a new one begins: try again"

    def _is_damaged_store(self) -> bool:
        """Whether this program made the file, and no other session has set it aside meanwhile."""
        with self.path.open("rb") as file:
            if file.read(100)[_MARK] != _APPLICATION_ID.to_bytes(4, "big"):
                return False
        try:
            with closing(sqlite3.connect(self.path, timeout=_TIMEOUT)) as db:
                found: str = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error:
            return True
        return found != "ok"


_LARGEST: Final = human_bytes(record.MAX_FILE_BYTES)
_ROOM: Final = human_bytes(MAX_BYTES)
_ELSEWHERE: Final = (
    f"Set {VARIABLE} to another file, or to {OFF}; runs can always be downloaded as files"
)


def _change(db: sqlite3.Connection, statement: str, *values: str) -> None:
    """Change one run; StoreError if there is none."""
    if db.execute(statement, values).rowcount != 1:
        raise StoreError("this run is not saved here any more: somebody deleted it")


def _check_room(db: sqlite3.Connection, more: int) -> None:
    """StoreError if a run of this many bytes has no room beside those that are saved."""
    count, size = db.execute(
        "SELECT count(*), coalesce(sum(size + length(prompt)), 0) FROM runs "
        "WHERE deleted_at IS NULL"
    ).fetchone()
    if count >= MAX_RUNS or size + more > MAX_BYTES:
        raise StoreError(
            f"{count} runs of {human_bytes(size)} in all are saved; at most {MAX_RUNS} "
            f"of {_ROOM} have room. Delete some, or download this one as a run file"
        )


def _readable(text: bytes) -> str:
    """A text of a damaged row, too."""
    return text.decode("utf-8", "replace")


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
