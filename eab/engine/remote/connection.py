"""Sends JSON requests to a server and reads the answers.

A request runs as a task of its own, so that the caller can give up at any moment. Its connection is
then closed, which makes the server stop. Other connections stay open.

The environment of this program says where the server is and how to log in:

    EAB_REMOTE=http://127.0.0.1:8080  EAB_REMOTE_KEY=...  eab run ... --model llama.cpp:embedded

No page, link or run file can name a server. The key goes to the server and nowhere else.
"""

import asyncio
import json
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillWaiting
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from eab.engine.models.stopping import stop_if_requested
from eab.errors import ModelError, ServerError
from eab.formatting import quoted

DIALECTS: Final = ("llama.cpp", "vllm")  # the kinds of server, as prefixes of model names
ADDRESS: Final = "EAB_REMOTE"
KEY: Final = "EAB_REMOTE_KEY"


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address and key."""

    url: str  # without a trailing slash
    # The key to send with every request; empty if none is needed. Never shown.
    key: str = field(default="", repr=False)


def is_on_server(model: str) -> bool:
    """Whether this is the name of a model on a server, such as `vllm:NAME`."""
    return model.partition(":")[0] in DIALECTS and ":" in model


def is_allowed() -> bool:
    """Whether the operator has set a server."""
    return bool(os.environ.get(ADDRESS, "").strip())


def configured_address() -> Address:
    """The server that the operator has set; ModelError if there is none."""
    url = os.environ.get(ADDRESS, "").strip()
    if not url:
        raise ModelError(
            f"no server is configured. The operator of this program must set {ADDRESS}, for "
            f"example {ADDRESS}=http://127.0.0.1:8080, and {KEY} if the server requires a key"
        )
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ModelError(
            f"{ADDRESS} is {quoted(url)}; it must be an address such as http://127.0.0.1:8080"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ModelError(
            f"{ADDRESS} contains a user, a question mark or a #; set it to the plain address, "
            f"and {KEY} to the key"
        )
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ModelError(f"{KEY} contains characters that cannot be sent; copy the key again")
    return Address(url.rstrip("/"), key)


SECONDS: Final = 60.0  # for a whole answer
CONNECT_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.02  # between two checks whether the answer is still wanted
MAX_ANSWER: Final = 2**26  # bytes
MAX_PAUSE: Final = 5.0  # longest wait that a server may ask for, in seconds
PAUSE: Final = 0.2  # seconds before the retry
_BUSY: Final = (429, 502, 503, 504)


class Connection:
    """Connections to one server; an answer may take at most `seconds`."""

    def __init__(self, address: Address, seconds: float = SECONDS) -> None:
        self.url = address.url
        self._seconds = seconds
        headers = {"Authorization": f"Bearer {address.key}"} if address.key else {}
        self._loop = asyncio.new_event_loop()
        self._client = httpx2.AsyncClient(
            base_url=address.url,
            headers=headers,
            timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS),
            follow_redirects=False,  # the key is sent only to this server
            trust_env=False,
        )
        thread = threading.Thread(target=self._loop.run_forever, name="eab-remote", daemon=True)
        thread.start()
        self._close = weakref.finalize(self, _close, self._loop, self._client, thread)

    def close(self) -> None:
        """Close the connections and stop the thread."""
        self._close()

    def get(self, path: str) -> Any:
        """The JSON value at this path. See `post` for errors."""
        return self._wait(_send(self._client, "GET", path, None))

    def text(self, path: str) -> str:
        """The text at this path. See `post` for errors."""
        content: bytes = self._wait(_read(self._client, "GET", path, None))
        return content.decode("utf-8", "replace")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a JSON value and return the JSON value of the answer.

        Raises:
            ServerError: There is no good answer.
            Stopped: Nobody waits for the answer (see `eab.engine.models.stopping`); the connection
                is closed.
        """
        return self._wait(_send(self._client, "POST", path, body))

    def pause(self, seconds: float) -> None:
        """Wait before a retry."""
        self._wait(asyncio.sleep(seconds))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        # In an empty context, because connections would keep what the caller's refers to.
        future: Future[Any] = Context().run(
            asyncio.run_coroutine_threadsafe, asyncio.wait_for(work, self._seconds), self._loop
        )
        try:
            while True:
                stop_if_requested()
                try:
                    return future.result(timeout=POLL_SECONDS)
                except StillWaiting:
                    if future.done() and isinstance(future.exception(), TimeoutError):
                        raise ServerError(
                            f"the server gave no answer within {self._seconds:g} seconds. It may "
                            "be busy; try fewer paths, or try again later"
                        ) from None
        finally:
            future.cancel()  # no effect if it is done; else closes the connection


async def _send(client: httpx2.AsyncClient, method: str, path: str, body: Any) -> Any:
    content = await _read(client, method, path, body)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ServerError("the server's answer is not JSON, or is incomplete", 0.0) from error


async def _read(client: httpx2.AsyncClient, method: str, path: str, body: Any) -> bytes:
    content = bytearray()
    try:
        async with client.stream(method, path, json=body) as answer:
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > MAX_ANSWER:
                    raise ServerError(
                        f"the server's answer has more than {MAX_ANSWER // 2**20} MiB; this "
                        "address may belong to another program"
                    )
    except httpx2.TimeoutException as error:
        raise ServerError(
            "the server did not answer in time. It may be busy; try again later"
        ) from error
    except httpx2.ConnectError as error:
        raise ServerError("the server cannot be reached; is it running?", PAUSE) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise ServerError("the connection to the server was lost", PAUSE) from error
    if not answer.is_success:
        key = client.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        hidden = content.replace(key, b"(key)") if key else content
        _refuse(answer.status_code, answer.headers, bytes(hidden))
    return bytes(content)


def _refuse(status: int, headers: Any, content: bytes) -> None:
    if status in (401, 403):
        raise ServerError(
            "the server refuses the key; the operator of this program must set another one"
        )
    if status in _BUSY:
        wait = _seconds_to_wait(headers.get("Retry-After", ""))
        words = "asks to wait" if status == 429 else "is not ready"
        retry = wait if wait <= MAX_PAUSE else None
        raise ServerError(f"the server {words} (HTTP {status}); try again later", retry)
    reason = " ".join(content[:300].decode("utf-8", "replace").split())
    raise ServerError(f"the server refused the request (HTTP {status}): {reason or 'no reason'}")


def _seconds_to_wait(header: str) -> float:
    return float(header) if header.isdecimal() and len(header) < 9 else PAUSE


def _close(
    loop: asyncio.AbstractEventLoop, client: httpx2.AsyncClient, thread: threading.Thread
) -> None:
    if not loop.is_running():
        return
    asyncio.run_coroutine_threadsafe(client.aclose(), loop).add_done_callback(
        lambda _: loop.call_soon_threadsafe(loop.stop)
    )
    if thread is not threading.current_thread():
        thread.join(timeout=5)
    if not loop.is_running():
        loop.close()
