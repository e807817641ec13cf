"""What this server saves under a name: runs and, beside them, sweeps, each kind in one SQLite file
on the machine that serves the page.

The environment variable EAB_STORE names the file, or is `off`. A damaged file, or one of another
program or version, is refused with an explanation and left unchanged. Each operation is its own
transaction. A lock on an open file is freed when the process ends, even after a crash.
"""

import os
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, Generic, TypeAlias, TypeVar

from platformdirs import user_data_path

from app.server import rules
from eab.errors import StoreError
from eab.formatting import counted, human_bytes
from eab.labs.tuning.report import TuningReport, dumps, loads
from eab.run import record
from eab.run.events import Event

Kept = TypeVar("Kept")

VARIABLE: Final = "EAB_STORE"
OFF: Final = "off"
_TIMEOUT: Final = 5.0  # seconds to wait for another session's transaction
_VERSION: Final = 2  # of the table
# Older programs only marked deleted things; these have `deleted_at`.
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


def _owner_and_version(db: sqlite3.Connection) -> tuple[int, int]:
    """The program that made the file, and the version of its tables; both 0 in an empty file."""
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return owner, version


def _readable(text: bytes) -> str:
    """Decode text, so that even damaged rows can be read."""
    return text.decode("utf-8", "replace")


MAX_NAME: Final = 80  # characters
_COLUMNS: Final = "id, CAST(name AS TEXT), CAST(saved_at AS TEXT), CAST(size AS INTEGER)"


@dataclass(frozen=True, slots=True)
class Saved:
    """The entry of a saved thing, without its content."""

    id: str
    name: str
    saved_at: str  # UTC, ISO 8601
    size: int  # bytes of its file


class NamedStore(Generic[Kept]):
    """Things of one kind, by id, in a file that need not exist.

    Each transaction is closed before the next one, so several sessions and several servers can
    share a file. All methods raise StoreError if it cannot be read or written.
    """

    def __init__(self, path: Path, kind: Kind[Kept]) -> None:
        self.path, self.kind = path, kind

    def all(self) -> list[Saved]:
        """Everything saved, the latest first, even if the clock has been changed."""
        if self._empty:
            return []
        with self.reading() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM {self.kind.many} WHERE deleted_at IS NULL "
                "ORDER BY rowid DESC"
            ).fetchall()
        return [Saved(*row) for row in rows]

    def save(self, name: str, content: Kept) -> Saved:
        """Save it by name. Raises StoreError if the name, the size or a full store forbids it."""
        file = self.kind.dumps(content)
        saved = Saved(secrets.token_urlsafe(9), checked_name(name), _now(), len(file))
        if len(file) > self.kind.largest:
            raise StoreError(
                f"the {self.kind.one} takes {human_bytes(len(file))}; at most "
                f"{human_bytes(self.kind.largest)} can be saved. {self.kind.smaller}"
            )
        with self.writing() as db:
            self._check_room(db, len(file))
            db.execute(
                f"INSERT INTO {self.kind.many} (id, name, saved_at, size, file) "
                "VALUES (?, ?, ?, ?, ?)",
                (saved.id, saved.name, saved.saved_at, saved.size, file),
            )
        return saved

    def load(self, saved_id: str) -> tuple[Saved, Kept]:
        """Load a saved thing. Raises StoreError if it is gone, RecordError if it is damaged."""
        row = None
        if not self._empty:
            with self.reading() as db:
                row = db.execute(
                    f"SELECT {_COLUMNS}, CAST(file AS BLOB) FROM {self.kind.many} "
                    "WHERE id = ? AND deleted_at IS NULL",
                    (saved_id,),
                ).fetchone()
        thing = self.kind.one
        if row is None:
            raise StoreError(f"this {thing} is not saved on this server; choose another one")
        return Saved(*row[:4]), self.kind.loads(row[4], f"the saved {thing} “{row[1]}”")

    def rename(self, saved_id: str, name: str) -> str:
        """Rename it; return the new name without surrounding spaces."""
        name = checked_name(name)
        self._change("UPDATE {many} SET name = ? WHERE id = ?", name, saved_id)
        return name

    def delete(self, saved_id: str) -> None:
        """Delete it for good."""
        self._change("DELETE FROM {many} WHERE id = ?", saved_id)

    def _change(self, statement: str, *values: str) -> None:
        """Change one row. Raises StoreError if it does not exist."""
        with self.writing() as db:
            made = db.execute(
                f"{statement.format(many=self.kind.many)} AND deleted_at IS NULL", values
            )
            if made.rowcount != 1:
                raise StoreError(
                    f"this {self.kind.one} is no longer saved here, because somebody deleted it; "
                    "choose another one"
                )

    def _check_room(self, db: sqlite3.Connection, more: int) -> None:
        """Raise StoreError if there is no room for this many more bytes."""
        kind = self.kind
        count, size = db.execute(
            f"SELECT count(*), coalesce(sum(size), 0) FROM {kind.many} WHERE deleted_at IS NULL"
        ).fetchone()
        if count >= kind.most or size + more > kind.most_bytes:
            raise StoreError(
                f"the store contains {counted(count, kind.one)} of {human_bytes(size)}; at most "
                f"{kind.most} of {human_bytes(kind.most_bytes)} are allowed. Delete some, or "
                "download this one as a file"
            )

    @property
    def _empty(self) -> bool:
        """Whether nothing has ever been saved. A failed first save may leave an empty file."""
        with self._explained("read"):
            return not self.path.exists() or self.path.stat().st_size == 0

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to the file, which must not be empty."""
        with self._explained("read"), closing(sqlite3.connect(self.path, timeout=_TIMEOUT)) as db:
            self._check(db)
            db.text_factory = _readable
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that locks the file from its start; an exception rolls it back."""
        with self._explained("written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_TIMEOUT, isolation_level=None)
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
        db.execute(_TABLE.format(many=self.kind.many))
        db.execute(f"PRAGMA application_id = {self.kind.application_id}")
        db.execute(f"PRAGMA user_version = {_VERSION}")

    def _check(self, db: sqlite3.Connection) -> None:
        """Check that this program made the file, in this version."""
        many = self.kind.many
        owner, version = _owner_and_version(db)
        if owner != self.kind.application_id:
            raise StoreError(
                f"{self.path} is not a store of saved {many}; it was left unchanged. "
                f"{self.kind.elsewhere}"
            )
        if version != _VERSION:
            raise StoreError(
                f"the saved {many} in {self.path} have version {version}; this program reads "
                f"version {_VERSION}. They were left unchanged. {self.kind.elsewhere}"
            )

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            if getattr(error, "sqlite_errorname", "") in _DAMAGED:
                raise StoreError(
                    f"the file of saved {self.kind.many} {self.path} is damaged ({error}). "
                    f"Move it elsewhere; a new one is then created. {self.kind.elsewhere}"
                ) from error
            reason = getattr(error, "strerror", None) or error
            raise StoreError(
                f"the saved {self.kind.many} in {self.path} cannot be {done}: {reason}. "
                f"{self.kind.elsewhere}"
            ) from error


def checked_name(name: str) -> str:
    """The name, stripped. Raises StoreError if it is empty, too long or not printable."""
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


if sys.platform == "win32":
    import msvcrt

    def lock(file: BinaryIO) -> None:
        """Lock the file, whose position must be 0. Raises OSError if it is already locked."""
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock(file: BinaryIO) -> None:
        """Lock the file. Raises OSError if it is already locked."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_MOST_BYTES: Final = 256 * 2**20
RUNS: Final[Kind[Sequence[Event]]] = Kind(
    one="run",
    many="runs",
    application_id=0x45414273,  # "EABs"
    most=200,
    most_bytes=_MOST_BYTES,
    largest=_MOST_BYTES,
    smaller="Make a shorter run",
    dumps=record.dumps,
    loads=record.loads,
)
RunStore: TypeAlias = NamedStore[Sequence[Event]]


def default_store() -> RunStore | None:
    """The store that EAB_STORE names, or the user's default; None if saved runs are off."""
    path = store_path()
    return NamedStore(path, RUNS) if path is not None else None


def store_path() -> Path | None:
    """The file of saved runs; None if this server saves nothing."""
    named = os.environ.get(VARIABLE, "").strip()
    if named.lower() == OFF or not rules.current().save_runs:
        return None
    if named:
        return Path(os.path.expanduser(named))
    return user_data_path("eab-explorer", appauthor=False) / "runs.sqlite"


SWEEPS: Final[Kind[TuningReport]] = Kind(
    one="sweep",
    many="sweeps",
    application_id=0x45414274,  # "EABt"
    most=100,
    most_bytes=128 * 2**20,
    largest=16 * 2**20,
    smaller="Sweep fewer values, prompts or seeds",
    dumps=dumps,
    loads=loads,
)


def default_sweep_store() -> NamedStore[TuningReport] | None:
    """The store of sweeps; None if runs are not saved either."""
    runs = store_path()
    if runs is None:
        return None
    return NamedStore(runs.with_name(f"{runs.stem}-sweeps.sqlite"), SWEEPS)
