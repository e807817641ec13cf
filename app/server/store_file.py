"""A SQLite file that this program made: its transactions, and the handling of files that are
damaged, of another program, or newer than this one.

The file of an older program can be read as it is; the first change brings it up to date. A damaged
file is renamed, and a new one is used; a file that this program did not make is left unchanged.
Knows nothing of Streamlit.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from eab.errors import StoreError

Kept = TypeVar("Kept")

VARIABLE: Final = "EAB_STORE"
OFF: Final = "off"
_TIMEOUT: Final = 5.0  # seconds to wait for another session's transaction
# What makes each version of the file from the one before; an empty file is version 0. The columns
# that are read must be in all versions. (SQLite drops a column only since 3.35.)
_STEPS: Final = (
    (
        "CREATE TABLE {many} (id TEXT PRIMARY KEY, name TEXT NOT NULL, saved_at TEXT NOT NULL, "
        "prompt TEXT NOT NULL, size INTEGER NOT NULL, deleted_at TEXT, file BLOB NOT NULL)",
    ),
    (  # the prompt stands in `file`, where it is compressed
        "CREATE TABLE without_prompt (id TEXT PRIMARY KEY, name TEXT NOT NULL, "
        "saved_at TEXT NOT NULL, size INTEGER NOT NULL, deleted_at TEXT, file BLOB NOT NULL)",
        "INSERT INTO without_prompt SELECT id, name, saved_at, size, deleted_at, file FROM {many} "
        "ORDER BY rowid",
        "DROP TABLE {many}",
        "ALTER TABLE without_prompt RENAME TO {many}",
    ),
)
_DAMAGED: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_MARK: Final = slice(68, 72)  # of the file's header: the application id


@dataclass(frozen=True, slots=True)
class Kind(Generic[Kept]):
    """What a store keeps.

    Attributes:
        one: One of it, as messages call it: "run".
        many: Several; also the name of the table.
        application_id: Marks the file as one of this program, with things of this kind.
        most: How many a store holds.
        most_bytes: The maximum of their total bytes.
        largest: How many bytes one of them may take.
        smaller: How to get a smaller one, as a sentence.
        dumps: Its bytes.
        loads: What stands in these bytes; the second argument names it in messages.
    """

    one: str
    many: str
    application_id: int
    most: int
    most_bytes: int
    largest: int
    smaller: str
    dumps: Callable[[Kept], bytes]
    loads: Callable[[bytes, str], Kept]

    @property
    def elsewhere(self) -> str:
        """What to do where the file cannot be used."""
        return (
            f"Set {VARIABLE} to another file, or to {OFF}; {self.many} can also be downloaded as "
            "files"
        )


class StoreFile:
    """The file of a store. Each transaction is closed before the next one, so several sessions, and
    several servers, may use one file.

    All methods raise StoreError if the file cannot be read or written.

    Args:
        path: The file; it need not exist.
        kind: What it keeps.
    """

    def __init__(self, path: Path, kind: Kind[Any]) -> None:
        self._path, self._kind = path, kind

    @property
    def empty(self) -> bool:
        """Whether nothing was ever saved. A first save that failed may leave an empty file."""
        with self._explained("read"):
            return not self._path.exists() or self._path.stat().st_size == 0

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to the file, which must not be empty."""
        with self._explained("read"), closing(sqlite3.connect(self._path, timeout=_TIMEOUT)) as db:
            self._check(db)
            db.text_factory = _readable
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that locks the file from its start; an exception rolls it back."""
        with self._explained("written"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._path, timeout=_TIMEOUT, isolation_level=None)
            with closing(connection) as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    self._bring_up_to_date(db)
                    yield db
                except BaseException:
                    db.rollback()
                    raise
                db.commit()

    def _bring_up_to_date(self, db: sqlite3.Connection) -> None:
        """Make a store of an empty file, and the newest version of an older store."""
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        owner, version = _owner_and_version(db)
        if owner or version or tables:
            self._check(db)
        for step in _STEPS[version:]:
            for statement in step:
                db.execute(statement.format(many=self._kind.many))
        if version < len(_STEPS):
            db.execute(f"PRAGMA application_id = {self._kind.application_id}")
            db.execute(f"PRAGMA user_version = {len(_STEPS)}")

    def _check(self, db: sqlite3.Connection) -> None:
        """Check that this program, or an older one, made the file."""
        many = self._kind.many
        owner, version = _owner_and_version(db)
        if owner != self._kind.application_id:
            raise StoreError(
                f"{self._path} is not a store of saved {many}; it was left unchanged. "
                f"{self._kind.elsewhere}"
            )
        if not 1 <= version <= len(_STEPS):
            raise StoreError(
                f"the saved {many} in {self._path} have version {version}; this program reads "
                f"versions up to {len(_STEPS)}. They were left unchanged. {self._kind.elsewhere}"
            )

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            if getattr(error, "sqlite_errorname", "") in _DAMAGED:
                raise StoreError(self.set_aside(error)) from error
            raise StoreError(
                f"the saved {self._kind.many} in {self._path} cannot be {done}: {_reason(error)}. "
                f"{self._kind.elsewhere}"
            ) from error

    def set_aside(self, error: Exception) -> str:
        """Give a damaged file another name, so that what is saved next goes into a new one.

        Args:
            error: What SQLite said of it.

        Returns:
            What was done, for the user.
        """
        said = f"the file of saved {self._kind.many} {self._path} is damaged ({error})"
        kept = self._path.with_name(
            f"{self._path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        )
        try:
            if not self._is_marked():
                return f"{said}; it was left unchanged. {self._kind.elsewhere}"
            with self._alone():
                if not self._is_damaged():
                    return f"{said}; the current file is intact and was left unchanged; try again"
                journal = self._path.with_name(f"{self._path.name}-journal")
                if journal.exists():  # it would be rolled back into the new file
                    journal.rename(kept.with_name(f"{kept.name}-journal"))
                self._path.rename(kept)
        except (OSError, sqlite3.Error) as why:
            return f"{said} and cannot be renamed: {_reason(why)}. {self._kind.elsewhere}"
        return f"{said}. It was renamed to {kept}, and a new file is used; try again"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others, in any process, from setting the file aside: the next one would be the new
        store, with what was saved there meanwhile.
        """
        lock = sqlite3.connect(f"{self._path}.lock", timeout=_TIMEOUT, isolation_level=None)
        with closing(lock):
            lock.execute("BEGIN EXCLUSIVE")
            yield

    def _is_marked(self) -> bool:
        """Whether this program made the file; also if it is gone."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            return file.read(100)[_MARK] == self._kind.application_id.to_bytes(4, "big")
        return True

    def _is_damaged(self) -> bool:
        """Whether the file is damaged, and no other session has set it aside meanwhile."""
        if self.empty:
            return False
        try:
            with closing(sqlite3.connect(self._path, timeout=_TIMEOUT)) as db:
                found: str = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error:
            return True
        return found != "ok"


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _owner_and_version(db: sqlite3.Connection) -> tuple[int, int]:
    """Which program made the file, and the version of its tables; both 0 in an empty file."""
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return owner, version


def _readable(text: bytes) -> str:
    """A text of a damaged row, too."""
    return text.decode("utf-8", "replace")
