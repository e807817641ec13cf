"""What a browser loads once: the board's script and style sheet as files, and the style of the page
in its HTML; every other response stays as it is.
"""

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient

from app.server import page_files
from eab.board import bundle

PAGE = "<html><body><div id='root'></div></body></html>"
AS_A_PAGE = {"Accept": "text/html,*/*"}


def served(folder: Path) -> TestClient:
    (folder / "index.html").write_text(PAGE)
    (folder / "app.js").write_bytes(b"</body>" * 1000)
    files = StaticFiles(directory=folder, html=True)
    app = Starlette(routes=[Mount("/", files)], middleware=[Middleware(page_files.StyledPage)])
    return TestClient(app)


def test_a_page_ends_with_the_style_and_is_never_taken_from_an_earlier_copy(tmp_path: Path) -> None:
    client = served(tmp_path)
    page = client.get("/", headers=AS_A_PAGE)
    assert page.text == PAGE.replace("</body>", f"<style>{page_files.style()}</style></body>")
    assert "etag" not in page.headers
    tag = client.get("/index.html").headers["etag"]
    again = client.get("/", headers=AS_A_PAGE | {"If-None-Match": tag})
    assert again.status_code == 200
    assert "</style>" not in page_files.style()


def test_other_files_and_requests_are_passed_on(tmp_path: Path) -> None:
    client = served(tmp_path)
    assert client.get("/", headers={"Accept": "application/json"}).text == PAGE
    script = client.get("/app.js", headers=AS_A_PAGE)
    assert script.content == b"</body>" * 1000
    assert script.headers["etag"]


def board_client() -> TestClient:
    route = Route(f"/{page_files.FOLDER}/{{name}}", page_files.board_file)
    return TestClient(Starlette(routes=[route]))


def test_the_loader_names_files_that_the_server_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_files, "is_served", True)
    loader = page_files.component()["js"]
    found = re.search(r'new URL\("([^"]+)"', loader)
    assert found is not None
    script, style = (board_client().get(f"/{found[1]}.{kind}") for kind in ("js", "css"))
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
        assert board_client().get(f"/{page_files.FOLDER}/{name}").status_code == 404
