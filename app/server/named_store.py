"""Named things of one kind, saved in one file on the machine that serves the page.

Each operation is its own transaction.
"""

import secrets
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Generic

from app.server.store_file import Kept, Kind, StoreFile
from eab.errors import StoreError
from eab.formatting import counted, human_bytes

MAX_NAME: Final = 80  # characters
MAX_DELETED: Final = 10  # deleted things that can still be restored
_COLUMNS: Final = "id, CAST(name AS TEXT), CAST(saved_at AS TEXT), CAST(size AS INTEGER)"


@dataclass(frozen=True, slots=True)
class Saved:
    """The entry of a saved thing, without its content."""

    id: str
    name: str
    saved_at: str  # UTC, ISO 8601
    size: int  # bytes of its file


class NamedStore(Generic[Kept]):
    """Things of one kind, by id. The file need not exist. All methods may raise StoreError."""

    def __init__(self, path: Path, kind: Kind[Kept]) -> None:
        self.path, self.kind = path, kind
        self.file = StoreFile(path, kind)

    def all(self) -> list[Saved]:
        """Everything saved, the latest first, even if the clock has been changed."""
        if self.file.empty:
            return []
        with self.file.reading() as db:
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
        with self.file.writing() as db:
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
        if not self.file.empty:
            with self.file.reading() as db:
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
        with self.file.writing() as db:
            self._change(db, "SET name = ? WHERE id = ? AND deleted_at IS NULL", name, saved_id)
        return name

    def delete(self, saved_id: str) -> None:
        """Delete it; the last MAX_DELETED deleted things can be restored."""
        many = self.kind.many
        with self.file.writing() as db:
            self._change(
                db, "SET deleted_at = ? WHERE id = ? AND deleted_at IS NULL", _now(), saved_id
            )
            # What is deleted now stays restorable, even if the clock has gone back.
            db.execute(
                f"DELETE FROM {many} WHERE deleted_at IS NOT NULL AND id NOT IN "
                f"(SELECT id FROM {many} WHERE deleted_at IS NOT NULL "
                "ORDER BY id = ? DESC, deleted_at DESC, id LIMIT ?)",
                (saved_id, MAX_DELETED),
            )

    def restore(self, saved_id: str) -> None:
        """Undo a deletion. Raises StoreError if it is too old, or there is no room."""
        with self.file.writing() as db:
            row = db.execute(
                f"SELECT size FROM {self.kind.many} WHERE id = ?", (saved_id,)
            ).fetchone()
            self._check_room(db, row[0] if row else 0)
            self._change(
                db, "SET deleted_at = NULL WHERE id = ? AND deleted_at IS NOT NULL", saved_id
            )

    def _change(self, db: sqlite3.Connection, change: str, *values: str) -> None:
        """Change one row. Raises StoreError if it does not exist."""
        if db.execute(f"UPDATE {self.kind.many} {change}", values).rowcount != 1:
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
