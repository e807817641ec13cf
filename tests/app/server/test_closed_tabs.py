"""A tab that is closed while something is sent to it leaves no traceback in the log."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from app.server.http import ClosedTabs


def served(connection: Coroutine[Any, Any, None]) -> None:
    """Serve one connection, in a thread: the browser tests have an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, connection).result()


async def sends_and_closes(scope: Any, receive: Any, send: Any) -> None:
    """What Streamlit does: it goes on after a message that could not be sent."""
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


def test_a_closed_tab_ends_quietly() -> None:
    scope = {"type": "websocket", "headers": []}
    with pytest.raises(WebSocketDisconnected):  # what the log would show
        served(sends_and_closes(scope, connected, gone))
    served(ClosedTabs(sends_and_closes)(scope, connected, gone))


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_other_errors_are_not_hidden(kind: str) -> None:
    with pytest.raises(RuntimeError):
        served(ClosedTabs(broken)({"type": kind}, connected, gone))
