"""Run files: saved events come back equal, and a stranger's file is read with care. A file is written
whole, or stays as it was.
"""

import errno
import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import events_of

from eab.errors import RecordError
from eab.lessons.checks.policy import TableModel, random_table
from eab.run.events import Event, Labelled, LabelRule, Probed, RunStarted, StepTimed
from eab.run.record import RunFile, dumps, is_truncated, load, loads, save
from eab.run.record.files import write_table, write_whole

SETTINGS = {"entropy_threshold": 0.4, "max_paths": 5, "max_new_tokens": 5, "seed": 3}
EVENTS = events_of(TableModel(random_table(2, 5), stop_ids=[4]), "0", **SETTINGS)


def unpacked(data: bytes) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]


def packed(lines: list[Any]) -> bytes:
    return gzip.compress("\n".join(map(json.dumps, lines)).encode())


HEADER, STARTED = gzip.decompress(dumps(EVENTS)).split(b"\n")[:2]
PROBED = msgspec.json.encode(Probed(0, 1.0))


def refusal(data: bytes) -> str:
    with pytest.raises(RecordError) as error:
        loads(data, "strange.eab")
    assert "strange.eab" in str(error.value)
    return str(error.value)


# ---- round trips


def test_a_saved_run_loads_equal(tmp_path):
    path = tmp_path / "run.eab"
    save(EVENTS, path)
    assert load(path) == load(str(path)) == EVENTS
    assert [file.name for file in tmp_path.iterdir()] == ["run.eab"]
    assert path.read_bytes() == dumps(EVENTS) == dumps(iter(EVENTS)) == dumps(loads(dumps(EVENTS)))


def test_every_prefix_of_a_run_loads():
    for length in range(1, len(EVENTS)):
        assert loads(dumps(EVENTS[:length])) == EVENTS[:length]


@given(chunk=st.integers(1, 3000))
def test_a_file_reads_the_same_in_chunks_of_any_size(chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eab.run.record.run_file._CHUNK", chunk)
        assert loads(dumps(EVENTS)) == EVENTS
        assert loads(dumps(EVENTS)[:-1]) == EVENTS[:-1]  # the last line may be incomplete


# ---- files that are not runs


def test_a_file_that_is_cut_anywhere_opens_up_to_its_last_step_or_is_refused():
    data, opened = dumps(EVENTS), list[list[Event]]()
    for length in range(0, len(data), 11):
        try:
            opened.append(loads(data[:length]))
        except RecordError as error:
            refused = str(error)
    assert refused == "the run file is incomplete; copy or download it again"
    assert len(opened) > 20
    for events in opened:
        assert events == EVENTS[: len(events)]
        assert isinstance(events[-1], RunStarted | StepTimed)
        assert is_truncated(events)
    assert not is_truncated(EVENTS)


def test_labels_after_the_end_are_saved_and_checked():
    events = [
        *EVENTS,
        Labelled(3, (LabelRule("a", "mark", "", 1), LabelRule("é", "contains", "b"))),
    ]
    assert loads(dumps(events)) == events
    assert not is_truncated(events)
    data = dumps(events)
    for place, value, reason in [
        ((0, 1), "marks", 'rules\\[0\\]\\[1\\]: expected one of: "mark", "contains"'),
        ((0, 0), "\udc80", "is not valid text"),
        ((0, 4), 10**6, "marks token 1000000 of path 1"),
    ]:
        lines = unpacked(data)
        lines[-1]["rules"][place[0]][place[1]] = value
        with pytest.raises(RecordError, match=reason):
            loads(packed(lines))


def test_a_growing_run_file_holds_every_step_and_leaves_the_older_file(tmp_path):
    path, part = tmp_path / "run.eab", tmp_path / "run.part.eab"
    path.write_bytes(b"older")
    file = RunFile(path)
    for count, event in enumerate(EVENTS, start=1):
        file.add(event)
        if isinstance(event, StepTimed):
            assert load(part) == EVENTS[:count]
    assert path.read_bytes() == b"older"
    file.close()
    assert load(path) == EVENTS
    assert [one.name for one in tmp_path.iterdir()] == ["run.eab"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_gets_the_whole_run_in_one_piece(tmp_path):
    path, read = tmp_path / "pipe.eab", list[bytes]()
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    file = RunFile(path)
    for event in EVENTS:
        file.add(event)
    file.close()
    reader.join(timeout=120)
    assert [loads(data) for data in read] == [EVENTS]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no such device here")
def test_a_full_disk_is_reported_when_the_run_has_ended(tmp_path):
    (tmp_path / "run.eab").symlink_to("/dev/full")
    said = {"run.eab": "Free some space or choose", "missing/run.eab": "Choose"}
    for name, advice in said.items():
        path = tmp_path / name
        file = RunFile(path)
        for event in EVENTS:
            file.add(event)
        with pytest.raises(RecordError, match=rf"cannot be written: No s[^.]*\. {advice} another"):
            file.close()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b" " * 2**24, "8,388,608 bytes in one line"),
        ((HEADER + b"\n" + STARTED + b"\n" * 300_000), "200,000 lines"),
        ((HEADER + (b"\n" + PROBED + b" " * 2**20) * 40), "33,554,432 unpacked bytes"),
    ],
)
def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(text, what):
    bomb = gzip.compress(text)
    assert len(bomb) < 2**17
    assert f"strange.eab has more than {what}" in refusal(bomb)


def test_a_file_without_end_is_refused_immediately(tmp_path):
    empty_block = b"\x00\x00\x00\xff\xff"  # a stored block of no bytes, which is not the last one
    endless = gzip.compress(b"")[:10] + empty_block * 7_000_000
    assert "more than 33,554,432 bytes" in refusal(endless)
    zeros = tmp_path / "huge.eab"
    with zeros.open("wb") as file:
        file.truncate(2**40)
    for path in (zeros, Path("/dev/zero")):
        if path.exists():
            with pytest.raises(RecordError, match="not a run file"):
                load(path)


@pytest.mark.parametrize(
    ("make", "reason"), [(lambda path: None, "No such file"), (Path.mkdir, "Is a directory")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, make, reason):
    path = tmp_path / "absent.eab"
    make(path)
    with pytest.raises(RecordError, match=f"absent.eab cannot be read: {reason}"):
        load(path)


# ---- invalid events


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused(value):
    data = gzip.decompress(dumps([EVENTS[0], StepTimed(0, 1, 12345.5, 0.5)]))
    refusal(gzip.compress(data.replace(b"12345.5", value.encode())))


# ---- saving


def test_an_error_while_events_are_produced_leaves_the_older_file_unchanged(tmp_path):
    def half_a_run():
        yield from EVENTS[:5]
        raise RuntimeError("the model broke")

    path = tmp_path / "run.eab"
    save(EVENTS, path)
    with pytest.raises(RuntimeError):
        save(half_a_run(), path)
    assert load(path) == EVENTS


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
