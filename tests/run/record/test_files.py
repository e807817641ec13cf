"""A file is written whole, or stays as it was."""

import errno
import os
from pathlib import Path

import pandas as pd
import pytest

from eab.errors import RecordError
from eab.run.record.files import write_table, write_whole


def test_the_content_is_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"one")
    write_whole(str(tmp_path / "a"), b"two")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a", b"two")]


@pytest.mark.parametrize("broken", ["replace", "write_bytes", "unlink"])
def test_a_disk_that_fails_leaves_the_older_file(tmp_path, monkeypatch, broken):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    write_whole(tmp_path / "a", b"one")
    monkeypatch.setattr(os, "replace", refuse)
    if broken != "replace":
        monkeypatch.setattr(Path, broken, refuse)
    with pytest.raises(OSError, match="Read-only"):
        write_whole(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"


def test_a_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "link", b"one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"one"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no such device here")
def test_a_device_can_be_written_to() -> None:
    write_whole(os.devnull, b"one")
    with pytest.raises(OSError, match="No space left"):
        write_whole("/dev/full", b"one")


def test_a_pyarrow_that_does_not_accept_numpy_is_explained(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> bytes:
        raise ImportError("pyarrow requires NumPy 2.0 or newer, found 1.26.4")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", refuse)
    with pytest.raises(RecordError, match='pip install "pyarrow<26"'):
        write_table(tmp_path / "a.parquet", pd.DataFrame({"a": [1]}))
    assert not list(tmp_path.iterdir())
