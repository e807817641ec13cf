"""The site as files: complete, small, with relative links that lead somewhere, and no other host."""

import re
from html.parser import HTMLParser
from pathlib import Path
from posixpath import dirname, normpath

import pytest
from typer.testing import CliRunner

from eab.cli.commands import app
from eab.lessons import bundled_runs
from eab.lessons.lesson_files import lessons
from eab.share.site import TECHNIQUES, site_files

MOST_BYTES = 3 * 10**6  # before the first picture


class Reader(HTMLParser):
    """The ids and addresses in a page, and what its browser is told to load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.policy = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.ids |= {given["id"]} if "id" in given else set()
        self.links += [given["href"]] if tag == "a" else []
        self.loads += [given[name] for name in ("src", "srcset", "data") if name in given]
        self.loads += [given["href"]] if tag == "link" else []
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]


FILES = {name: data.decode() for name, data in site_files().items() if name.endswith(".html")}
PAGES = {name: Reader(data) for name, data in FILES.items()}


def test_there_is_a_page_for_each_lesson_and_technique() -> None:
    assert {name for name in PAGES if name != "index.html"} == {
        *(f"lessons/{lesson.id}.html" for lesson in lessons()),
        *(f"techniques/{technique.id}.html" for technique in TECHNIQUES),
    }


def test_the_first_page_has_all_recorded_runs_and_is_small() -> None:
    names = {run.file.removesuffix(".eab") for run in bundled_runs.recordings()}
    assert PAGES["index.html"].ids >= {f"run-{name}" for name in names}
    assert {f"?run={name}" for name in names} <= {*PAGES["index.html"].links}
    assert len(FILES["index.html"].encode()) < MOST_BYTES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_and_its_links_lead_to_pages(name: str) -> None:
    page = PAGES[name]
    assert all(load.startswith("data:") for load in page.loads)
    assert "default-src 'none'" in page.policy
    assert not re.search("unsafe|https?:", page.policy)
    for link in page.links:
        path, _, fragment = re.sub(r"\?run=[\w-]+", "", link).partition("#")
        if not path.startswith("https://"):  # a paper
            target = normpath(f"{dirname(name)}/{path}".lstrip("/")) if path else name
            assert target in PAGES
            assert not fragment or fragment in PAGES[target].ids


def test_answers_are_hidden_and_numbers_are_filled_in() -> None:
    for lesson in lessons():
        text = FILES[f"lessons/{lesson.id}.html"]
        assert text.count("Show the answer</summary>") == 1
        assert "{{" not in text


def test_the_first_page_may_load_the_story_model() -> None:
    assert {"worker-src 'self'", "connect-src 'self'"} <= {*PAGES["index.html"].policy.split("; ")}


def test_the_command_writes_the_files(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["site", str(tmp_path / "made")])
    assert told.exit_code == 0, told.output
    written = {
        str(file.relative_to(tmp_path / "made"))
        for file in (tmp_path / "made").rglob("*")
        if file.is_file()
    }
    assert written == {*site_files()}
