"""The style of the page is in its HTML; every other response stays as it is."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient

from app.server import page_files

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
