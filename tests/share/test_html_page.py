"""The HTML file of a run: a single, complete file whose data block no hostile text can break out
of.
"""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import WORDS, invented_run

from eab.board.messages import board_message
from eab.errors import RecordError
from eab.lessons import bundled_runs
from eab.run import fold
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
    data = json.loads(Reader(to_html(STORY)).scripts[0])
    run = fold(STORY)
    assert data["message"].items() >= json.loads(json.dumps(board_message(run))).items()
    assert len(data["texts"]["rows"]) == len(data["texts"]["texts"]) == len(run.leaves())
    assert to_html(run) == to_html(STORY)


def test_the_common_parts_of_texts_are_stored_once() -> None:
    run = fold(invented_run(5, 60, 64))
    texts = json.loads(Reader(to_html(run)).scripts[0])["texts"]["texts"]
    assert len(run.samples) > 50
    assert sum(len(rest) for _, _, rest in texts) < sum(len(one.text) for one in run.samples) / 2


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
    data, _ = read.scripts
    assert json.loads(data)["message"]["run"] == "page"
    assert not set("<>&") & set(data)


def test_a_run_that_has_not_started_is_refused_with_an_explanation() -> None:
    with pytest.raises(RecordError, match="has not started"):
        to_html([])


def test_a_file_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    save_html(STORY, tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == to_html(STORY)
    with pytest.raises(RecordError, match="cannot be written"):
        save_html(STORY, tmp_path)
