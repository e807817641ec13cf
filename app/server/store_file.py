"""A SQLite file made by this program, and its transactions.

A damaged file, or one of another program or version, is refused with an explanation and left
unchanged.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from eab.errors import StoreError

Kept = TypeVar("Kept")

VARIABLE: Final = "EAB_STORE"
OFF: Final = "off"
_TIMEOUT: Final = 5.0  # seconds to wait for another session's transaction
_VERSION: Final = 2  # of the table
_TABLE: Final = (
    "CREATE TABLE {many} (id TEXT PRIMARY KEY, name TEXT NOT NULL, saved_at TEXT NOT NULL, "
    "size INTEGER NOT NULL, deleted_at TEXT, file BLOB NOT NULL)"
)
_DAMAGED: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


@dataclass(frozen=True, slots=True)
class Kind(Generic[Kept]):
    """A kind of thing that a store keeps."""

    one: str  # its name in messages, such as "run"
    many: str  # the plural; also the name of the table
    application_id: int  # marks a file of this program with things of this kind
    most: int  # maximum number of things in a store
    most_bytes: int  # maximum bytes of all things together
    largest: int  # maximum bytes of one thing
    smaller: str  # how to get a smaller one, as a sentence
    dumps: Callable[[Kept], bytes]
    loads: Callable[[bytes, str], Kept]  # the second argument is its name in messages

    @property
    def elsewhere(self) -> str:
        """What to do if the file cannot be used."""
        return (
            f"Set {VARIABLE} to another file, or to {OFF}; {self.many} can also be downloaded as "
            "files"
        )


class StoreFile:
    """The file of a store. Each transaction is closed before the next one, so several sessions and
    several servers can share a file.

    All methods raise StoreError if the file cannot be read or written. The file need not exist.
    """

    def __init__(self, path: Path, kind: Kind[Any]) -> None:
        self._path, self._kind = path, kind

    @property
    def empty(self) -> bool:
        """Whether nothing has ever been saved. A failed first save may leave an empty file."""
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
                    self._create(db)
                    yield db
                except BaseException:
                    db.rollback()
                    raise
                db.commit()

    def _create(self, db: sqlite3.Connection) -> None:
        """Turn an empty file into a store; check any other file."""
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables or any(_owner_and_version(db)):
            self._check(db)
            return
        db.execute(_TABLE.format(many=self._kind.many))
        db.execute(f"PRAGMA application_id = {self._kind.application_id}")
        db.execute(f"PRAGMA user_version = {_VERSION}")

    def _check(self, db: sqlite3.Connection) -> None:
        """Check that this program made the file, in this version."""
        many = self._kind.many
        owner, version = _owner_and_version(db)
        if owner != self._kind.application_id:
            raise StoreError(
                f"{self._path} is not a store of saved {many}; it was left unchanged. "
                f"{self._kind.elsewhere}"
            )
        if version != _VERSION:
            raise StoreError(
                f"the saved {many} in {self._path} have version {version}; this program reads "
                f"version {_VERSION}. They were left unchanged. {self._kind.elsewhere}"
            )

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            if getattr(error, "sqlite_errorname", "") in _DAMAGED:
                raise StoreError(
                    f"the file of saved {self._kind.many} {self._path} is damaged ({error}). "
                    f"Move it elsewhere; a new one is then created. {self._kind.elsewhere}"
                ) from error
            reason = getattr(error, "strerror", None) or error
            raise StoreError(
                f"the saved {self._kind.many} in {self._path} cannot be {done}: {reason}. "
                f"{self._kind.elsewhere}"
            ) from error


def _owner_and_version(db: sqlite3.Connection) -> tuple[int, int]:
    """The program that made the file, and the version of its tables; both 0 in an empty file."""
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return owner, version


def _readable(text: bytes) -> str:
    """Decode text, so that even damaged rows can be read."""
    return text.decode("utf-8", "replace")
