"""The CPU time and memory that it takes to open or refuse run files made to be costly, for the
terminal, the exported page and the pictures of the app.
"""

import gzip
import json
import time
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from invented_runs import invented_run, predicted
from rich.console import Console
from strange_runs import LINES, bush, chain, comb, packed

from eab.board.messages import board_message
from eab.cli import terminal
from eab.errors import EabError
from eab.figures.tables import samples_table, steps_table, tokens_table
from eab.run import RunState, fold, record
from eab.run.record import run_file
from eab.share.exports import to_graphml, to_html

pytestmark = pytest.mark.slow

SECONDS = 10.0  # CPU time; the slowest takes one or two, up to five on a busy machine
MEMORY = 2**30
STARTED = msgspec.to_builtins(invented_run(0, 1, 1)[0])


def file_of(*lines: Any) -> bytes:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return gzip.compress("\n".join([LINES[0], *texts]).encode("ascii"), 1)


def array(of: str, times: int) -> str:
    return f"[{','.join([of] * times)}]"


def start_with(field: str, value: str) -> str:
    """The JSON of a RunStarted with this JSON text as the value of one field."""
    return json.dumps(STARTED | {field: "HERE"}).replace('"HERE"', value)


PREDICTED = msgspec.to_builtins(predicted(0, 0, 1.0))
FILES = {
    "empty lists": lambda: file_of(array("[]", 1_490_000)),
    "numbers": lambda: file_of(*[array("0", 700_000)] * 4),
    "bad tokens": lambda: file_of(start_with("prompt_tokens", array("null", 190_000))),
    "too many tokens": lambda: file_of(start_with("prompt_tokens", array("1", 1_490_000))),
    "bad texts": lambda: file_of(start_with("prompt_texts", array("[]", 190_000))),
    "long numbers": lambda: file_of(start_with("prompt_tokens", array("9" * 4000, 2000))),
    "a text as a list": lambda: file_of(start_with("prompt_tokens", '"' + "y" * 8_000_000 + '"')),
    "escapes": lambda: file_of(start_with("prompt", '"' + r"\ud800" * 1_300_000 + '"')),
    "keys": lambda: file_of("{" + ",".join(f'"{key}":0' for key in range(500_000)) + "}"),
    "equal keys": lambda: file_of(*["{" + ",".join(['"a":{}'] * 900_000) + "}"] * 3),
    "nested": lambda: file_of("[" * 8_000_000),
    "candidates": lambda: file_of(
        STARTED, PREDICTED | {"predictions": [[0, 1.0, [[1, "a", 0.5]] * 400_000]]}
    ),
    "parts of characters": lambda: file_of(
        STARTED, *[PREDICTED | {"predictions": [[0, 1.0, [[1, "\udc80" * 9, 0.5]] * 16]] * 256}] * 80
    ),
    "empty texts": lambda: file_of(
        STARTED, *[PREDICTED | {"predictions": [[0, 1.0, [[1, "", 0]] * 16]] * 256}] * 200
    ),
    "children": lambda: file_of(
        STARTED, {"event": "Forked", "step": 0, "path": 0, "children": list(range(900_000))}
    ),
    "events of no kind": lambda: file_of(*[{"event": "x"}] * 199_000),
    "predictions": lambda: file_of(STARTED, *[PREDICTED] * 199_000),
    "a long prompt": lambda: file_of(start_with("prompt", json.dumps("\x1b" * 200_000))),
    "a long chain": lambda: packed(chain(4095, "a")),
    "long tokens": lambda: packed(chain(1000, "w" * 999)),
    "a comb": lambda: packed(comb(1400)),
    "a bush": lambda: packed(bush(19_700)),
}  # fmt: skip


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of this process for the work, and its result."""
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def opened(data: bytes) -> RunState | None:
    with suppress(EabError):
        return fold(record.loads(data))
    return None


def show_it(run: RunState) -> None:
    """In the terminal, as files, and as pictures."""
    Console(file=StringIO(), width=80).print(terminal.summary(run, narrow=True))
    board_message(run), to_graphml(run)
    samples_table(run), tokens_table(run), steps_table(run)


@pytest.fixture
def peak() -> Callable[[], int]:
    """peak() -> by how many bytes this process has grown at most since the start of the test."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("only Linux tells the largest memory of a while")

    def largest() -> int:
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return 1024 * int(line.split()[1])

    reset.write_text("5")  # resets the peak to what is held now
    before = largest()
    return lambda: largest() - before


@pytest.mark.parametrize("kind", FILES)
def test_a_costly_file_is_opened_or_refused_quickly(kind: str, peak: Callable[[], int]) -> None:
    data = FILES[kind]()
    assert len(data) <= run_file.SMALL.text_bytes
    opening, run = seconds(lambda: opened(data))
    assert opening < SECONDS
    if run is not None:
        for show in (show_it, to_html):
            assert opening + seconds(lambda show=show: show(run))[0] < SECONDS
    assert peak() < MEMORY
