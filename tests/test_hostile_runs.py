"""Run files with impossible numbers and texts: refused in words when loaded, or shown without any exception."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from app import gallery
from eab import record, report
from eab.comparison import fold_comparison, of_caches
from eab.errors import RecordError
from eab.events import Event
from eab.figures import memory
from eab.figures.board import board_message
from eab.figures.charts import for_print
from eab.figures.graph import to_graphml
from eab.figures.mass import mass_figure
from eab.figures.sentences import comparison_sentence, cost_sentence, weight_sentence
from eab.figures.tables import comparison_steps_table, costs_table, samples_table, steps_table, tokens_table
from eab.run import fold

LINES = gzip.decompress(record.dumps(gallery.events_of(gallery.recordings()[1]))).decode().split("\n")
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
    json.dumps(report.as_json(run))
    report.summary(run)
    for sentence in (cost_sentence, weight_sentence):
        sentence(run).encode("utf-8")
    return True


def show_comparison(events: list[Event]) -> None:
    """The same file twice, as if it were two caches."""
    comparison = fold_comparison([*events, *events], of_caches(("tree", "deep-copy")))
    for figure in (memory.held_figure, memory.time_figure, memory.totals_figure):
        for_print(figure(comparison)).to_json()
    for sentence in (memory.held_sentence, memory.time_sentence, memory.totals_sentence, comparison_sentence):
        sentence(comparison).encode("utf-8")
    memory.paths_figure(comparison.runs[0]).to_json()
    memory.paths_sentence(comparison.runs[0])
    costs_table(comparison), comparison_steps_table(comparison)
    json.dumps(report.comparison_json(comparison))
    report.comparison_summary(comparison)


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
    show_everything(changed("Forked", lambda event: event.update(weights=[number] * len(event["weights"]))))
    show_everything(changed("RunStarted", lambda event: event["model"].update(row_bytes=number)))
    show_everything(changed("RunStarted", lambda event: event["model"].update(vocab_size=number)))


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_no_text_breaks_the_page(text: str) -> None:
    show_everything(changed("TokenAppended", lambda event: event.update(text=text)))
    show_everything(changed("RunStarted", lambda event: event.update(prompt=text)))
    show_everything(changed("RunEnded", lambda event: event.update(message=text)))


def test_an_escape_sequence_does_not_reach_the_terminal() -> None:
    run = fold(record.loads(changed("RunEnded", lambda event: event.update(reason="failed", message="\x1b]0;x\x07"))))
    assert "\x1b" not in cost_sentence(run)


def test_a_small_file_that_unpacks_to_very_many_lines_is_refused() -> None:
    data = gzip.compress(LINES[0].encode() + b"\n" * (record.MAX_EVENTS + 10))
    with pytest.raises(RecordError, match="more than 1,000,000 events"):
        record.loads(data)
