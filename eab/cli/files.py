"""The output files of commands: run files and JSON, checked before the work, written after it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eab import record
from eab.errors import RecordError
from eab.record.prompt_lines import STANDARD_STREAM as STANDARD_STREAM
from eab.record.whole_file import save_whole


def check_writable(json_file: str, record_file: str = "") -> None:
    """Check, before the work, that its results can be written; RecordError if not."""
    if record_file == STANDARD_STREAM:
        raise RecordError("--record needs a file name; only --json can write to standard output")
    for name in (json_file, record_file):
        if name in ("", STANDARD_STREAM):
            continue
        file, folder = Path(name), Path(name).parent
        if os.path.isdir(file) or (os.path.exists(file) and not os.access(file, os.W_OK)):
            raise RecordError(f"{name} cannot be written: it is a folder or read-only")
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            raise RecordError(
                f"{name} cannot be written: the folder {folder} is missing or read-only"
            )


@contextmanager
def recorded(record_file: str) -> Iterator[record.RunFile | None]:
    """A run file to write during a run, or None without a name; it remains if the run breaks."""
    file = record.RunFile(record_file) if record_file else None
    try:
        yield file
    finally:
        if file is not None:
            file.abandon()


def save(value: dict[str, Any], json_file: str, run_file: record.RunFile | None) -> None:
    """Complete the run file and write JSON, if requested; RecordError only after trying both."""
    problems: list[str] = []
    if run_file is not None:
        with _collecting(problems):
            run_file.close()
    if json_file:
        with _collecting(problems):
            write_json(value, json_file)
    if problems:
        raise RecordError("; ".join(problems))


def write_json(value: dict[str, Any], file: str) -> None:
    """Write a value as JSON, to standard output if the file is `-`."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if file == STANDARD_STREAM:
        print(text)
        return
    save_whole(file, f"{text}\n".encode())


@contextmanager
def _collecting(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except RecordError as error:
        problems.append(str(error))
