"""The folder of a batch while its runs are active: full disk, two processes, unfinished runs."""

import errno
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from eab import record
from eab.cli.batch import TABLE, BatchFolder, BatchLine
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.record.files import GrowingFile
from eab.run import fold

EVENTS = record.load("assets/runs/coin.eab")
LINE = BatchLine(1, "coin", Request("I tossed a coin", BranchingConfig()))
BEGUN = 9  # events, with at least one complete step


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[BatchFolder]:
    with closing(BatchFolder(tmp_path)) as made:
        yield made


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_an_active_run_has_a_file_of_its_own_and_is_not_in_the_table(
    tmp_path: Path, folder: BatchFolder
) -> None:
    folder.note(LINE, EVENTS[:BEGUN])
    folder.note(BatchLine(2, "other", LINE.request), EVENTS[:BEGUN])
    assert names(tmp_path) == ["coin.part.eab", "other.part.eab"]
    assert fold(record.load(tmp_path / "coin.part.eab")).ended is None
    folder.save(LINE, EVENTS)
    assert names(tmp_path) == ["coin.eab", "other.part.eab"]
    assert record.load(tmp_path / "coin.eab") == EVENTS
    assert folder.save_table() == len(fold(EVENTS).samples)
    assert set(pd.read_parquet(tmp_path / TABLE)["id"]) == {"coin"}


def test_a_failed_run_leaves_what_it_had_and_is_run_again(
    tmp_path: Path, folder: BatchFolder
) -> None:
    folder.note(LINE, EVENTS[:BEGUN])
    folder.leave(LINE)
    assert names(tmp_path) == ["coin.part.eab"]
    again = BatchFolder(tmp_path)
    again.save(LINE, EVENTS)
    assert names(tmp_path) == ["coin.eab"]
    assert record.load(tmp_path / "coin.eab") == EVENTS


def test_events_that_a_full_disk_refused_are_written_at_the_end(
    tmp_path: Path, folder: BatchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(_: GrowingFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(GrowingFile, "_append", is_full)
    folder.note(LINE, EVENTS[:BEGUN])
    folder.save(LINE, EVENTS)
    assert record.load(tmp_path / "coin.eab") == EVENTS


def test_two_batches_in_one_folder_leave_whole_files(tmp_path: Path) -> None:
    first, second = BatchFolder(tmp_path), BatchFolder(tmp_path)
    first.note(LINE, EVENTS[:BEGUN])
    second.note(LINE, EVENTS[:BEGUN])
    first.save(LINE, EVENTS)
    assert record.load(tmp_path / "coin.eab") == EVENTS
    second.save(LINE, EVENTS)
    assert record.load(tmp_path / "coin.eab") == EVENTS
    assert names(tmp_path) == ["coin.eab"]
