"""The board's script and style sheet, which the browser loads separately from the page."""

import re

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from app.server import page_files
from eab.board import bundle


def client() -> TestClient:
    route = Route(f"/{page_files.FOLDER}/{{name}}", page_files.board_file)
    return TestClient(Starlette(routes=[route]))


def test_the_loader_names_files_that_the_server_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_files, "is_served", True)
    loader = page_files.component()["js"]
    found = re.search(r'new URL\("([^"]+)"', loader)
    assert found is not None
    script, style = (client().get(f"/{found[1]}.{kind}") for kind in ("js", "css"))
    assert script.text == bundle.javascript("streamlit")
    assert style.text == bundle.stylesheet()
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in style.headers["cache-control"]
    assert len(loader) < 1000 < len(script.text), "Streamlit sends it with every message"


def test_without_our_server_streamlit_sends_the_files_themselves() -> None:
    assert page_files.component() == {
        "js": bundle.javascript("streamlit"),
        "css": bundle.stylesheet(),
    }


def test_other_names_are_not_found() -> None:
    for name in ("0000000000000000.js", "board.js", "..%2Fserve.py"):
        assert client().get(f"/{page_files.FOLDER}/{name}").status_code == 404
