"""Run files with impossible numbers and texts are refused with an explanation, or shown without an
exception.
"""

import gzip
import json
import string
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invented_runs import invented_run
from places import ROOT
from rich.console import Console
from strange_runs import LINES, bush, chain, changed, comb, much_text, packed

from eab.board.messages import board_message
from eab.cli import terminal
from eab.config import BranchingConfig
from eab.errors import EabError, RecordError
from eab.figures.captions import cost_sentence, weight_sentence
from eab.figures.charts import for_print
from eab.figures.tables import samples_table, steps_table, tokens_table
from eab.labs import caches
from eab.labs.caches import CACHES_LAB, PROCESSED, paths_chart, paths_sentence
from eab.labs.charts import chart_figure
from eab.labs.measurement import OfRun, Report
from eab.labs.variants import costs_table, variants_sentence
from eab.run import RunState, fold, record
from eab.run.events import Event, StepTimed
from eab.run.events.fields import MAX_PROMPT_TOKENS, MAX_TOKEN_CHARACTERS
from eab.run.record import dumps, loads, run_file
from eab.share.exports import to_graphml, to_html

NUMBERS = [0, -1, 1, 0.5, 1e4, 1e300, 1.7e308, -1e300, 10**20, 10**400]
TEXTS = ["", "\ud800", "\udc80", "\x1b[2J", "<b>", "\x00", "\ufffe", "=1+1", "x" * 10_000]


def loaded(data: bytes) -> tuple[list[Event], RunState] | None:
    """Return the events and their run, or None if the file was refused with an explanation."""
    try:
        events = record.loads(data)
        return events, fold(events)
    except EabError as error:
        str(error).encode("utf-8")
        return None


def show_everything(data: bytes) -> bool:
    """Load and show the file; return False if it was refused."""
    found = loaded(data)
    if found is None:
        return False
    events, run = found
    json.dumps(board_message(run), allow_nan=False).encode()
    samples_table(run), tokens_table(run), steps_table(run), to_graphml(run)
    to_html(run).encode("utf-8")
    if run.ended is not None:
        show_comparison(events)
    json.dumps(terminal.as_json(run))
    terminal.summary(run)
    for sentence in (cost_sentence, weight_sentence):
        sentence(run).encode("utf-8")
    return True


def show_comparison(events: list[Event]) -> None:
    """Show the same file twice, as if the runs had different caches."""
    report = Report()
    for name in ("tree", "deep-copy"):
        report.collect(OfRun(name, event) for event in events)
    for lab in (CACHES_LAB, caches.BYTES, PROCESSED):
        for_print(chart_figure(lab.chart(report))).to_json()
        lab.answer(report).encode("utf-8")
        lab.table(report)
    variants_sentence(report).encode("utf-8")
    for_print(chart_figure(paths_chart(report.runs["tree"]))).to_json()
    paths_sentence(report.runs["tree"])
    costs_table(report)
    json.dumps(terminal.caches_json(report))
    terminal.caches_summary(report, width=80)


def test_the_unchanged_recording_is_shown() -> None:
    assert show_everything(gzip.compress("\n".join(LINES).encode()))


ROWS = ("rows_shared", "rows_private", "rows_spare", "rows_independent")
BYTES = ("bytes_held", "bytes_copied", "allocations", "peak_bytes")
FIELDS = {
    "Predicted": [("predictions", 0, 1), *(("predictions", 0, 2, 0, at) for at in (0, 2))],
    "TokensAppended": [("tokens", 0, 1), ("tokens", 0, 3)],
    "RunStarted": [("threshold_nats",), ("model", "row_bytes"), ("model", "vocab_size")],
    "Forked": [("weights", 0)],
    "KvMeasured": [("usage", name) for name in (*ROWS, *BYTES)],
    "StepTimed": [("seconds",), ("tokens",), ("step",)],
    "RunEnded": [("step",)],
}
NUMBER_PLACES = [(kind, place, NUMBERS) for kind, places in FIELDS.items() for place in places]
TEXT_PLACES = [
    ("Predicted", ("predictions", 0, 2, 0, 1), TEXTS),
    ("RunStarted", ("prompt",), TEXTS),
    ("RunEnded", ("message",), TEXTS),
]


@pytest.mark.parametrize(("kind", "place", "values"), [*NUMBER_PLACES, *TEXT_PLACES])
def test_no_number_and_no_text_breaks_the_page(kind, place, values):
    """Each value is refused or loaded; all texts, the smallest and the largest number are shown."""

    def with_value(value: Any) -> bytes:
        def change(event: Any) -> None:
            for key in place[:-1]:
                event = event[key]
            event[place[-1]] = value

        return changed(kind, change)

    files = {value: with_value(value) for value in values}
    accepted = [value for value, data in files.items() if loaded(data)]
    assert 10**400 not in accepted
    if values is NUMBERS:
        accepted = [*{min(accepted, default=None), max(accepted, default=None)} - {None}]
    for value in accepted:
        assert show_everything(files[value])
    failed = {"reason": "failed", "message": "\x1b]0;x\x07"}  # an escape sequence
    run = fold(record.loads(changed("RunEnded", lambda event: event.update(failed))))
    assert "\x1b" not in cost_sentence(run)


# ---- files that are too large


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (packed([], "\n[" + "0," * 3_000_001 + "0]"), "more than 3,000,000 values"),
        (packed([], "\n" + "[" * 2**22), "line 2 is not an event of this version: it is not JSON"),
        (packed(bush(20_000)), "more than 20,000 paths"),
        (packed(comb(2100)), "more than 2,097,152 bytes of text in its tree"),
        (packed(chain(200, "é" * 1000)), "bytes of text in its tree"),
        (packed(chain(4098, "a")), "step: expected int <= 4096, got 4097"),
        (packed(much_text()), "more than 33,554,432 unpacked bytes"),
        (packed([*chain(3, "a"), chain(3, "a")[2]]), "at step 0; its next step is 3"),
        (
            packed(chain(1, "w" * 1001)),
            r"tokens\[0\]\[2\]: expected str of length <= 1000, got a length of 1,001",
        ),
    ],
    ids=range(9),
)
def test_a_file_that_would_take_too_long_is_refused(data: bytes, reason: str) -> None:
    assert len(data) < 10**6
    with pytest.raises(RecordError, match=reason):
        record.loads(data)


@pytest.mark.parametrize(
    "events", [comb(1005), chain(500, "w" * 999), chain(1000, " the"), bush(5000)], ids=range(4)
)
def test_a_file_within_the_limits_is_shown(events: list[Event]) -> None:
    console = Console(file=StringIO(), width=80)
    console.print(terminal.summary(fold(record.loads(packed(events))), narrow=True))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count("\n") < 60_000
    assert ("paths more" in shown) == (len(fold(events).paths) > terminal.MAX_ROWS)


def test_a_run_that_could_not_be_opened_is_not_saved(tmp_path, monkeypatch):
    small = replace(run_file.SMALL, lines=1000)
    monkeypatch.setattr(run_file, "SMALL", small)
    events = [*invented_run(0, 1, 1)[:1], *([StepTimed(0, 1, 0.1, 0.1)] * 1000)]
    with pytest.raises(RecordError, match="the run has more than 1,000 lines"):
        record.save(events, tmp_path / "run.eab")
    assert list(tmp_path.iterdir()) == []


# ---- the largest settings


@pytest.mark.parametrize(("paths", "tokens"), [(256, 4096), (256, 400), (64, 2000)])
def test_the_largest_settings_have_room_within_the_limits(paths: int, tokens: int) -> None:
    """The limits are twice what a token of a run was measured to need."""
    amounts = run_file.Amounts("the run")
    amounts.allow(BranchingConfig(max_paths=paths, max_new_tokens=tokens))
    limits, most = amounts.limits, paths * tokens
    assert limits.text_bytes >= 1500 * most
    assert limits.lines >= 8 * most
    assert limits.values >= 120 * most
    assert limits.paths >= most


def test_a_run_beyond_the_limits_of_small_runs_is_saved_and_read(monkeypatch):
    small = run_file.Limits(200_000, 1000, 10_000, 50)
    monkeypatch.setattr(run_file, "SMALL", small)
    events = invented_run(3, 60, 60)
    data = dumps(events)
    text = gzip.decompress(data).decode()
    assert len(text) > small.text_bytes
    assert text.count("\n") > small.lines
    assert text.count(",") > small.values
    assert len(fold(events).paths) > small.paths
    assert loads(data) == events
    with pytest.raises(RecordError, match="more than 80 paths"):
        loads(data, most_tokens=40)
    # The leaves of a long run repeat what they share: their texts are much longer than the tree's.
    monkeypatch.undo()
    events = invented_run(5, 300, 64, [" " + letter * 40 for letter in "abcdef"])
    run = fold(events)
    text = sum(len(run.text(leaf.id)) for leaf in run.leaves())
    assert text > max(run_file.SMALL_TREE_BYTES, 64 * 64 * 300)
    assert loads(dumps(events)) == events


# ---- random changes


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The keys and indices that lead to each value inside this one."""
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += places(value[key], (*path, key))
    return found


SMALL = [json.loads(line) for line in LINES[1:] if line][:60]
AN_EVENT = st.integers(1, len(SMALL) - 1)
VALUES = st.one_of(
    st.sampled_from([None, True, "", "x", "\ud800", "\udc80", "x" * 1001, [], {}, [[]], 10**400]),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.recursive(st.none() | st.integers(), st.lists, max_leaves=20),
)
# Pieces to insert into the text of a file, as they would stand in the JSON
PIECES = st.one_of(
    st.sampled_from(
        [*'{}[],:"\n\\', "null", "-1", "1e999", "NaN", '"\\ud800"', "9" * 5000, "[" * 5000]
    ),
    st.text(string.printable, max_size=12),
    st.sampled_from(LINES[:60]),
)


@settings(max_examples=220)
@given(
    values=st.lists(st.tuples(st.sampled_from(places(SMALL)), VALUES), max_size=1),
    moves=st.lists(st.tuples(AN_EVENT, AN_EVENT, AN_EVENT), max_size=1),
    pieces=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), PIECES), max_size=2),
    kept=st.sampled_from([1.0, 1.0, 0.7, 0.2]),
)
def test_no_changed_file_causes_a_traceback(values, moves, pieces, kept):
    """A value is replaced, events change places or come twice, text is replaced, the end is cut."""
    lines = json.loads(json.dumps(SMALL))
    for place, value in values:
        holder = lines
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = value
    for one, other, twice in moves:
        lines[one], lines[other] = lines[other], lines[one]
        lines.insert(twice, lines[twice])
    text = "\n".join([LINES[0], *map(json.dumps, lines)])
    for share, length, piece in pieces:
        start = int(share * len(text))
        text = text[:start] + piece + text[start + length :]
    show_everything(gzip.compress(text[: int(kept * len(text))].encode()))


def test_the_limits_in_the_docs_are_those_in_the_code() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    small, each = run_file.SMALL, run_file.OF_A_TOKEN
    rows = [
        f"{small.text_bytes // 2**20} MiB | {each.text_bytes // 2**10} KiB",
        f"{small.lines:,} | {each.lines}",
        f"{small.values:,} | {each.values}",
        f"{small.paths:,} | {each.paths}",
        f"{run_file.SMALL_TREE_BYTES // 2**20} MiB | {run_file.TREE_BYTES_OF_A_TOKEN} bytes, for",
        f"{MAX_PROMPT_TOKENS:,}",
        f"{MAX_TOKEN_CHARACTERS:,}",
    ]
    assert [row for row in rows if f"| {row}" not in page] == []
