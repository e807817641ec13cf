"""Run files with impossible numbers and texts: refused in words when loaded, or shown without any
exception.
"""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from app.server import bundled_runs
from eab import record
from eab.analysis.sweep import cache_sweep, fold_sweep
from eab.board.messages import board_message
from eab.cli import terminal
from eab.errors import RecordError
from eab.events import Event
from eab.figures import caches
from eab.figures.captions import cost_sentence, sweep_sentence, weight_sentence
from eab.figures.charts import for_print
from eab.figures.mass import mass_figure
from eab.figures.tables import (
    costs_table,
    samples_table,
    steps_table,
    sweep_steps_table,
    tokens_table,
)
from eab.run import fold
from eab.share.graphml import to_graphml

LINES = (
    gzip.decompress(record.dumps(bundled_runs.events_of(bundled_runs.recordings()[1])))
    .decode()
    .split("\n")
)
NUMBERS = [0, -1, 1, 0.5, 1e4, 1e300, 1.7e308, -1e300, 10**20, 10**400]
TEXTS = ["", "\ud800", "\udc80", "\x1b[2J", "<b>", "\x00", "\ufffe", "=1+1", "x" * 10_000]


def changed(kind: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The recording with its first event of this kind changed."""
    lines = list(LINES)
    place = next(index for index, line in enumerate(lines) if f'"event":"{kind}"' in line)
    event = json.loads(lines[place])
    change(event)
    lines[place] = json.dumps(event)
    return gzip.compress("\n".join(lines).encode())


def show_everything(data: bytes) -> bool:
    """Load and show; False if the file was refused in words."""
    try:
        events = record.loads(data)
    except RecordError:
        return False
    run = fold(events)
    json.dumps(board_message(run), allow_nan=False).encode()
    samples_table(run), tokens_table(run), steps_table(run), to_graphml(run)
    mass_figure(run).to_json()
    show_comparison(events)
    json.dumps(terminal.as_json(run))
    terminal.summary(run)
    for sentence in (cost_sentence, weight_sentence):
        sentence(run).encode("utf-8")
    return True


def show_comparison(events: list[Event]) -> None:
    """The same file twice, as if it were two caches."""
    sweep = fold_sweep([*events, *events], cache_sweep(("tree", "deep-copy")))
    for figure in (caches.held_figure, caches.time_figure, caches.totals_figure):
        for_print(figure(sweep)).to_json()
    for sentence in (
        caches.held_sentence,
        caches.time_sentence,
        caches.totals_sentence,
        sweep_sentence,
    ):
        sentence(sweep).encode("utf-8")
    caches.paths_figure(sweep.runs[0]).to_json()
    caches.paths_sentence(sweep.runs[0])
    costs_table(sweep), sweep_steps_table(sweep)
    json.dumps(terminal.sweep_json(sweep))
    terminal.sweep_summary(sweep)


def test_the_recording_itself_is_shown() -> None:
    assert show_everything(gzip.compress("\n".join(LINES).encode()))


FIELDS = [
    ("Predicted", "entropy"),
    ("TokenAppended", "log_prob"),
    ("TokenAppended", "token"),
    ("RunStarted", "threshold_nats"),
    ("KvMeasured", "rows_shared"),
    ("KvMeasured", "rows_private"),
    ("KvMeasured", "rows_spare"),
    ("KvMeasured", "bytes_held"),
    ("KvMeasured", "rows_independent"),
    ("KvMeasured", "bytes_copied"),
    ("KvMeasured", "allocations"),
    ("KvMeasured", "peak_bytes"),
    ("StepTimed", "seconds"),
    ("StepTimed", "tokens"),
    ("StepTimed", "step"),
    ("RunEnded", "step"),
]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_no_number_breaks_the_page(kind: str, field: str, number: float) -> None:
    show_everything(changed(kind, lambda event: event.update({field: number})))


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_no_weight_and_no_model_size_breaks_the_page(number: float) -> None:
    show_everything(
        changed("Forked", lambda event: event.update(weights=[number] * len(event["weights"])))
    )
    show_everything(changed("RunStarted", lambda event: event["model"].update(row_bytes=number)))
    show_everything(changed("RunStarted", lambda event: event["model"].update(vocab_size=number)))


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_no_text_breaks_the_page(text: str) -> None:
    show_everything(changed("TokenAppended", lambda event: event.update(text=text)))
    show_everything(changed("RunStarted", lambda event: event.update(prompt=text)))
    show_everything(changed("RunEnded", lambda event: event.update(message=text)))


def test_an_escape_sequence_does_not_reach_the_terminal() -> None:
    run = fold(
        record.loads(
            changed("RunEnded", lambda event: event.update(reason="failed", message="\x1b]0;x\x07"))
        )
    )
    assert "\x1b" not in cost_sentence(run)


def test_a_small_file_that_unpacks_to_very_many_lines_is_refused() -> None:
    data = gzip.compress(LINES[0].encode() + b"\n" * (record.MAX_EVENTS + 10))
    with pytest.raises(RecordError, match="more than 1,000,000 events"):
        record.loads(data)
