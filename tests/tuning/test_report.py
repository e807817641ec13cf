"""Sweeps as files: what was written is read, and anything else is refused in words."""

import gzip
import json
from pathlib import Path

import pytest
from cells import cell
from hypothesis import given
from hypothesis import strategies as st

from eab.errors import RecordError
from eab.events import RunEnded
from eab.tuning.report import MAX_BYTES, Began, TuningReport, dumps, load, loads


def report() -> TuningReport:
    made = TuningReport()
    for event in (Began("tiny", "float32", "a machine", 2), cell(0.5, 1), cell(0.9, 2, "b")):
        made.apply(event)
    made.apply(RunEnded(0, "finished"))
    return made


def changed(**parts: object) -> bytes:
    content = json.loads(gzip.decompress(dumps(report())))
    return gzip.compress(json.dumps(content | parts).encode())


def test_a_sweep_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json.gz"
    file.write_bytes(dumps(report()))
    found = load(file)
    assert found.cells == report().cells
    assert (found.began, found.complete, found.model_name) == (report().began, True, "tiny")
    assert dumps(found) == dumps(report())


def test_what_has_not_begun_is_not_written() -> None:
    assert TuningReport().model_name == ""
    with pytest.raises(RecordError, match="has not begun"):
        dumps(TuningReport())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no gzip",
        dumps(report())[:-20],
        gzip.compress(b"[]"),
        gzip.compress(b"[" * 100_000),
        changed(version=2),
        changed(cells=[[1]]),
        changed(cells=5),
        changed(columns=None),
        changed(began={"model": 1}),
        changed(began={"model": 1, "dtype": "a", "machine": "b", "cells": 3}),
        gzip.compress(bytes(MAX_BYTES + 1)),
    ],
    ids=range(12),
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError, match="sweep"):
        loads(data, "a sweep")


@given(st.binary(max_size=60))
def test_no_bytes_crash_it(data: bytes) -> None:
    with pytest.raises(RecordError):
        loads(data, "bytes")


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        load(tmp_path / "no.json.gz")
