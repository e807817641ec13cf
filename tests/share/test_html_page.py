"""The HTML file of a run: a single, complete file whose data block no hostile text can break out
of.
"""

import base64
import gzip
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import WORDS, invented_run
from msgspec import structs
from page_data import data_of

from eab import token_text
from eab.board.messages import board_message
from eab.errors import RecordError
from eab.lessons import bundled_runs
from eab.run import fold
from eab.run.events import Event, RunStarted
from eab.run.record.run_file import decode
from eab.share import live
from eab.share.html_page import save_html, to_html

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
    with pytest.raises(RecordError, match="cannot be written"):
        save_html(STORY, tmp_path)
