"""Exports agree with the run: the exported program reproduces it, and the tables keep their types
in a round trip.
"""

import base64
import gzip
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from equality import untimed
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import WORDS, invented_run
from msgspec import structs
from page_data import data_of

from eab import token_text
from eab.api.branching import EntropyAdaptiveBranching
from eab.board.messages import board_message
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request, continue_from
from eab.errors import RecordError
from eab.figures.tables import steps_table, tokens_table
from eab.lessons import bundled_runs
from eab.run import fold, record
from eab.run.events import Event, RunStarted
from eab.run.record.run_file import decode
from eab.share import live
from eab.share.exports import as_python, save_html, to_html

CONFIGS = [
    BranchingConfig(),
    BranchingConfig(
        entropy_threshold=3.0,
        threshold_unit="rank",
        branch_factor=2,
        min_fork_weight=0.01,
        temperature=0.7,
        top_k=50,
    ),
    BranchingConfig(
        policy="original", cache="deep-copy", seed=2**40 + 1, r=1, top_p=0.9, kv_limit_mib=512
    ),
]
PROMPTS = [
    "Once upon a time",
    "He said \"no\" \\ and {left}.\nThen\t'she' café 🙂 $x$",
    "\u202eback",
]


@pytest.mark.parametrize(("config", "prompt"), list(zip(CONFIGS, PROMPTS, strict=True)))
def test_the_exported_program_reproduces_the_run(
    embedded: HuggingFaceModel, config: BranchingConfig, prompt: str
) -> None:
    short = replace(config, max_new_tokens=12)
    events = list(event_stream(embedded, Request(prompt, short)))
    started = next(event for event in events if isinstance(event, RunStarted))
    scope: dict[str, Any] = {}
    exec(compile(as_python(started), "program", "exec"), scope)
    assert scope["run"].samples == fold(events).samples
    assert untimed(scope["explorer"].stream(prompt)) == untimed(events)


def test_the_exported_program_allows_the_same_control_tokens(embedded: HuggingFaceModel) -> None:
    text, short = "a<|endoftext|>b", replace(CONFIGS[0], max_new_tokens=2)
    events = list(event_stream(embedded, Request(text, short, parse_special=True)))
    scope: dict[str, Any] = {}
    exec(compile(as_python(fold(events).started), "program", "exec"), scope)
    assert scope["run"].started == fold(events).started


def test_the_exported_program_gives_token_ids_that_are_not_those_of_their_text(
    embedded: HuggingFaceModel,
) -> None:
    ids, short = embedded.encode("O") + embedded.encode("n")[1:], CONFIGS[0]
    short = replace(short, max_new_tokens=4)
    events = list(event_stream(embedded, Request("", short, token_ids=ids)))
    started = fold(record.loads(record.dumps(events))).started
    assert embedded.encode(started.prompt, short) != started.prompt_tokens == ids
    scope: dict[str, Any] = {}
    exec(compile(as_python(started), "program", "exec"), scope)
    assert scope["run"].started == started
    assert scope["run"].samples == fold(events).samples
    longer = continue_from(embedded, started, scope["run"].samples[0].token_ids[:2], short)
    again = fold(event_stream(embedded, longer)).started
    exec(compile(as_python(again), "program", "exec"), scope)
    assert scope["run"].started == again
    other = replace(short, system="Be brief.")
    assert continue_from(embedded, started, (), other).token_ids == ids


def test_the_exported_program_loads_the_same_weight_format() -> None:
    eab = EntropyAdaptiveBranching("embedded", device="cpu", weights="int8", max_new_tokens=6)
    events = list(eab.stream("Once upon a time"))
    started = next(event for event in events if isinstance(event, RunStarted))
    program = as_python(started)
    assert "weights='int8'" in program
    assert "layout" not in program
    scope: dict[str, Any] = {}
    exec(compile(program, "program", "exec"), scope)
    assert untimed(scope["explorer"].stream("Once upon a time")) == untimed(events)


@pytest.mark.parametrize("table", [tokens_table, steps_table])
@pytest.mark.parametrize("file", [one.file for one in bundled_runs.recordings()[:4]])
def test_tables_survive_a_round_trip_through_parquet_and_csv(table: Any, file: str) -> None:
    whole = table(fold(bundled_runs.events_of(bundled_runs.named(file))))
    assert len(whole)
    pd.testing.assert_frame_equal(pd.read_parquet(BytesIO(whole.to_parquet(index=False))), whole)
    again = pd.read_csv(StringIO(whole.to_csv(index=False)), keep_default_na=False)
    pd.testing.assert_frame_equal(again, whole, check_dtype=False, rtol=1e-12)


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--",
    "]]>",
    "<img src=x onerror=alert(1)>",
    "{policy}",
    "\u2028",
    "\udce2\udc82",
    "\x00",
    "&lt;",
]
STORY = bundled_runs.events_of(bundled_runs.named(bundled_runs.STORY))


def changed(**fields: Any) -> list[Event]:
    """The story, with another header."""
    return [
        structs.replace(event, **fields) if isinstance(event, RunStarted) else event
        for event in STORY
    ]


def with_model(**fields: Any) -> list[Event]:
    return changed(model=structs.replace(fold(STORY).started.model, **fields))


def with_header(**settings: Any) -> list[Event]:
    return changed(config=replace(fold(STORY).started.config, **settings))


class Reader(HTMLParser):
    """The elements of a page, and the contents of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        if self.elements[-1:] == ["script"] and data.strip():
            self.scripts.append(data)


CALM = Reader(to_html(STORY)).elements


def test_the_page_contains_the_whole_run() -> None:
    data, run = data_of(to_html(STORY)), fold(STORY)
    assert [decode(json.dumps(event).encode()) for event in data["events"]] == list(STORY)
    assert data["message"]["file"] == board_message(run)["file"]
    assert data["message"]["deciding"] == json.loads(json.dumps(board_message(run)["deciding"]))
    assert [text for *_, text in data["texts"]["rows"]] == [
        token_text.visible(sample.text) for sample in run.samples
    ]
    assert to_html(run) == to_html(STORY)


@pytest.mark.parametrize(
    ("events", "has_events"),
    [
        (with_model(own_memory="It keeps a state."), True),
        (with_header(cache="deep-copy"), True),
        (with_header(policy="own:mine"), False),
    ],
    ids=["own memory", "another cache", "a policy given in Python"],
)
def test_what_the_page_cannot_make_from_events_it_has(
    events: list[Event], has_events: bool
) -> None:
    data = data_of(to_html(events))
    assert data["message"].items() >= json.loads(json.dumps(board_message(fold(events)))).items()
    assert bool(data["events"]) == has_events


def test_the_page_holds_the_story_model_on_request() -> None:
    page = to_html(STORY, live=True)
    assert data_of(page) == data_of(to_html(STORY))
    blocks = re.findall(r'data-file="([\w.]+)">([\w+/=]+)</script>', page)
    held = {name: gzip.decompress(base64.b64decode(data)) for name, data in blocks}
    assert held == {"worker.js": live.worker().encode()} | live.model_files()
    assert "worker-src blob:" in page
    assert "worker-src" not in to_html(STORY)


def test_the_page_refers_to_no_other_address() -> None:
    page = to_html(STORY)
    assert set(re.findall(r"https?://[^\s\"'`]+", page)) == {
        "http://www.w3.org/2000/svg"
    }  # a name, not a link
    assert "src=" not in page
    assert "default-src 'none'" in page


@given(st.integers(0, 500), st.integers(1, 12), st.integers(1, 8), st.floats(0, 1))
def test_hostile_tokens_stay_in_the_data_block(
    seed: int, steps: int, paths: int, until: float
) -> None:
    events = invented_run(seed, steps, paths, WORDS + HOSTILE)
    read = Reader(to_html(events[: max(1, int(until * len(events)))]))
    assert read.elements == CALM
    assert len(read.scripts) == 2
    assert re.fullmatch(r"[\w+/=]+", read.scripts[0], re.ASCII)


def test_a_run_that_has_not_started_is_refused_with_an_explanation() -> None:
    with pytest.raises(RecordError, match="has not started"):
        to_html([])


def test_a_file_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    save_html(STORY, tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == to_html(STORY)
    with pytest.raises(RecordError, match=r"cannot be written: [^.]*\. Choose another place"):
        save_html(STORY, tmp_path)
