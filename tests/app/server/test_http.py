"""The layers in front of Streamlit: the host names that a server answers to, tabs that are closed
while a message is sent to them, and what a browser loads once.
"""

import asyncio
import re
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from app.server import http
from app.server.http import ClosedTabs
from app.server.rules import PUBLIC, Rules
from eab.board import javascript, stylesheet


def status(host: str, rules: Rules, only_this_machine: bool, monkeypatch: Any) -> int:
    """The status of a GET request with this Host header."""
    monkeypatch.setattr(http, "current", lambda: rules)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    app = http.KnownHosts(http.PlainTextResponse("ok"), only_this_machine)
    scope = {"type": "http", "headers": [(b"host", host.encode())] if host else []}
    served(app(scope, receive, send))
    return int(sent[0]["status"])


OURS = Rules(hosts=("Example.org", "b.example"))
HERE = [
    "localhost",
    "localhost:8501",
    "LOCALHOST.",
    "a.localhost:1",
    "127.0.0.1:8501",
    "[::1]:8501",
]
NAMED = ["example.org", "EXAMPLE.ORG:443", "b.example."]
ELSEWHERE = ["", "evil.example", "evil.example:8501", "localhost.evil.example", "www.example.org"]
ELSEWHERE += ["[", "a@b:c", "::"]


@pytest.mark.parametrize(
    ("rules", "only_this_machine", "answered"),
    [
        *((rules, True, HERE) for rules in (Rules(), PUBLIC)),
        *((rules, False, [*HERE, *NAMED, *ELSEWHERE]) for rules in (Rules(), PUBLIC)),
        *((OURS, only, [*HERE, *NAMED]) for only in (True, False)),
    ],
)
def test_a_server_answers_to_this_machine_to_addresses_and_to_the_names_in_its_rules(
    rules: Rules, only_this_machine: bool, answered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in (*HERE, *NAMED, *ELSEWHERE):
        expected = 200 if host in answered else 421
        assert status(host, rules, only_this_machine, monkeypatch) == expected, host


@given(st.text())
def test_any_host_header_is_parsed(header: str) -> None:
    assert isinstance(http.is_this_machine_or_number(http.host_name(header)), bool)


def served(connection: Coroutine[Any, Any, None]) -> None:
    """Serve one connection in a new thread; this one may run the event loop of browser tests."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, connection).result()


async def sends_and_closes(scope: Any, receive: Any, send: Any) -> None:
    """Behave like Streamlit, which continues after a message that could not be sent."""
    socket = WebSocket(scope, receive, send)
    await socket.accept()
    with pytest.raises(WebSocketDisconnect):
        await socket.send_bytes(b"a picture")
    try:
        await socket.receive_bytes()
    except RuntimeError:
        await socket.close()


async def broken(scope: Any, receive: Any, send: Any) -> None:
    raise WebSocketDisconnected if scope["type"] == "http" else RuntimeError("something else")


async def connected() -> Any:
    return {"type": "websocket.connect"}


async def gone(message: Any) -> None:
    if message["type"] != "websocket.accept":
        raise OSError("the browser has gone")


def test_a_closed_tab_causes_no_error() -> None:
    scope = {"type": "websocket", "headers": []}
    with pytest.raises(WebSocketDisconnected):  # this would be logged
        served(sends_and_closes(scope, connected, gone))
    served(ClosedTabs(sends_and_closes)(scope, connected, gone))


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_other_errors_are_not_hidden(kind: str) -> None:
    with pytest.raises(RuntimeError):
        served(ClosedTabs(broken)({"type": kind}, connected, gone))


PAGE = "<html><body><div id='root'></div></body></html>"
AS_A_PAGE = {"Accept": "text/html,*/*"}


def files_in(folder: Path) -> TestClient:
    (folder / "index.html").write_text(PAGE)
    (folder / "app.js").write_bytes(b"</body>" * 1000)
    files = StaticFiles(directory=folder, html=True)
    app = Starlette(routes=[Mount("/", files)], middleware=[Middleware(http.StyledPage)])
    return TestClient(app)


def test_a_page_ends_with_the_style_and_is_never_taken_from_an_earlier_copy(tmp_path: Path) -> None:
    client = files_in(tmp_path)
    page = client.get("/", headers=AS_A_PAGE)
    assert page.text == PAGE.replace("</body>", f"<style>{http.style()}</style></body>")
    assert "etag" not in page.headers
    tag = client.get("/index.html").headers["etag"]
    again = client.get("/", headers=AS_A_PAGE | {"If-None-Match": tag})
    assert again.status_code == 200
    assert "</style>" not in http.style()


def test_other_files_and_requests_are_passed_on(tmp_path: Path) -> None:
    client = files_in(tmp_path)
    assert client.get("/", headers={"Accept": "application/json"}).text == PAGE
    script = client.get("/app.js", headers=AS_A_PAGE)
    assert script.content == b"</body>" * 1000
    assert script.headers["etag"]


def board_client() -> TestClient:
    route = Route(f"/{http.FOLDER}/{{name}}", http.board_file)
    return TestClient(Starlette(routes=[route]))


def test_the_loader_names_files_that_the_server_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "is_served", True)
    loader = http.component()["js"]
    found = re.search(r'new URL\("([^"]+)"', loader)
    assert found is not None
    script, style = (board_client().get(f"/{found[1]}.{kind}") for kind in ("js", "css"))
    assert script.text == javascript("streamlit")
    assert style.text == stylesheet()
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in style.headers["cache-control"]
    assert len(loader) < 1000 < len(script.text), "Streamlit sends it with every message"


def test_without_our_server_streamlit_sends_the_files_themselves() -> None:
    assert http.component() == {
        "js": javascript("streamlit"),
        "css": stylesheet(),
    }


def test_other_names_are_not_found() -> None:
    for name in ("0000000000000000.js", "board.js", "..%2Fserve.py"):
        assert board_client().get(f"/{http.FOLDER}/{name}").status_code == 404
