"""The board's code and style, which the browser loads beside the page."""

import re

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from app.server import board_files
from eab.board import bundle


def client() -> TestClient:
    route = Route(f"/{board_files.FOLDER}/{{name}}", board_files.board_file)
    return TestClient(Starlette(routes=[route]))


def test_the_loader_names_files_that_the_server_has() -> None:
    found = re.search(r'new URL\("([^"]+)"', board_files.loader())
    assert found is not None
    script, style = (client().get(f"/{found[1]}.{kind}") for kind in ("js", "css"))
    assert script.text == bundle.javascript("streamlit")
    assert style.text == bundle.stylesheet()
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in style.headers["cache-control"]


def test_what_streamlit_sends_with_every_message_is_small() -> None:
    assert len(board_files.loader()) < 1000 < len(bundle.javascript("streamlit"))


def test_other_names_are_not_found() -> None:
    for name in ("0000000000000000.js", "board.js", "..%2Fserve.py"):
        assert client().get(f"/{board_files.FOLDER}/{name}").status_code == 404
