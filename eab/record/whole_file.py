"""Atomic file writes, so a file is complete or absent; also tables and the folders for them."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eab.errors import RecordError

if TYPE_CHECKING:
    import pandas as pd


def write_whole(path: Path | str, data: bytes) -> None:
    """Write a file, replacing an older one only at the end; OSError leaves the older file intact.

    A device or a pipe, such as /dev/stdout, is written to directly.
    """
    target = Path(os.path.realpath(path))  # replaces the target of a link, not the link
    if os.path.exists(target) and not os.path.isfile(target):
        target.write_bytes(data)
        return
    scratch = target.with_name(target.name + ".part")
    try:
        scratch.write_bytes(data)
        os.replace(scratch, target)
    except OSError:
        with suppress(OSError):  # this also fails on a read-only disk
            scratch.unlink(missing_ok=True)
        raise


def save_whole(path: Path | str, data: bytes) -> None:
    """Write a file as `write_whole` does; RecordError if that fails."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise cannot_be_written(path, error) from error


def cannot_be_written(path: Path | str, error: OSError) -> RecordError:
    """The error to raise if a file could not be written."""
    return RecordError(
        f"{path} cannot be written: {error.strerror}. Free some space or choose another place"
    )


def make_folder(path: Path) -> None:
    """Make a folder if needed; RecordError if nothing can be written into it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"the folder {path} cannot be created: {error.strerror}. Choose another one"
        ) from error
    if not os.access(path, os.W_OK):
        raise RecordError(f"the folder {path} is read-only. Choose another one")


def write_table(path: Path, table: "pd.DataFrame") -> None:
    """Write a table as Parquet, or raise RecordError."""
    try:
        data = table.to_parquet(index=False)
    except ImportError as error:  # pyarrow declares no numpy version, but refuses some on import
        raise RecordError(
            f"the table {path} cannot be written: pyarrow cannot be used. With numpy before 2, "
            'it must be older than 26: pip install "pyarrow<26"'
        ) from error
    save_whole(path, data)
