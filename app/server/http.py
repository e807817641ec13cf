"""The server's responses in addition to the page: headers and health."""

import hmac
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnected

from app.server.rules import Rules, current

# Streamlit evaluates code, injects styles into the page, and runs components from blob URLs.
_CONTENT_SECURITY_POLICY: Final = (
    "default-src 'self'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; "
    "style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; "
    "font-src 'self' data:; "
    "connect-src 'self'; "
    "worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors {ancestors}"
)


def security_headers(rules: Rules) -> dict[str, str]:
    """The headers of every response: the browser may contact no server but this one."""
    policy = _CONTENT_SECURITY_POLICY.format(ancestors=rules.frame_ancestors)
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    }


class SecurityHeaders:
    """ASGI middleware that adds the headers to every response.

    Uploads need Streamlit's cookie. In a frame of another site, browsers keep it only if it says
    SameSite=None, which requires HTTPS, and is kept apart for each such site (Partitioned).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = security_headers(current())
        self._embedded = current().is_embedded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                if self._embedded and "set-cookie" in headers:
                    headers["set-cookie"] += "; Partitioned"
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class ClosedTabs:
    """ASGI middleware that suppresses the errors of a closed browser tab.

    If a tab closes while something is sent to it, Streamlit tries to close its WebSocket again,
    which would log a traceback each time.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except WebSocketDisconnected:
            if scope["type"] != "websocket":
                raise


class UnusedEndpoints:
    """ASGI middleware that blocks what Streamlit leaves open and our pages do not need: WebSockets
    without an origin, which no browser opens; text over WebSockets, which causes a traceback; and,
    on a public server, Streamlit's metrics, which anybody could read.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._hides_metrics = current().public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            if not Headers(scope=scope).get("origin"):
                refused = PlainTextResponse(
                    "The header Origin is missing or belongs to another site.\n", status_code=403
                )
                return await refused(scope, receive, send)
            return await self._app(scope, lambda: _bytes_alone(receive), send)
        if self._hides_metrics and scope.get("path", "").endswith("/_stcore/metrics"):
            return await PlainTextResponse("not found\n", status_code=404)(scope, receive, send)
        return await self._app(scope, receive, send)


async def _bytes_alone(receive: Receive) -> Message:
    """The next message; a text message counts as a disconnect."""
    message = await receive()
    if message["type"] == "websocket.receive" and message.get("bytes") is None:
        return {"type": "websocket.disconnect", "code": 1003}  # unsupported data
    return message


class KnownHosts:
    """ASGI middleware that refuses requests for host names that are not this server's.

    Otherwise a website could suddenly point its name to this machine (DNS rebinding) and use the
    page, because the browser would treat both as the same site.
    """

    def __init__(self, app: ASGIApp, only_this_machine: bool) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in current().hosts)
        self._any = not (self._names or only_this_machine)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            name = host_name(Headers(scope=scope).get("host", ""))
            if not (self._any or name in self._names or is_this_machine_or_number(name)):
                words = (
                    "This server does not answer requests for this host name. Its operator can "
                    "add the name"
                )
                refused = PlainTextResponse(f"{words} to `hosts` in its rules.\n", status_code=421)
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


def host_name(header: str) -> str:
    """The host name or address in a Host header, without the port; empty if it is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_this_machine_or_number(name: str) -> bool:
    """Whether it is localhost or an IP address, neither of which can be redirected by DNS."""
    try:
        return name == "localhost" or name.endswith(".localhost") or bool(ip_address(name))
    except ValueError:
        return False


async def health(_request: Request) -> Response:
    """Answer `ok` while the process serves."""
    return PlainTextResponse("ok\n")


def is_key(given: str) -> bool:
    """Whether this is the key of the rules; always False if they have none."""
    key = current().key
    return bool(key) and hmac.compare_digest(given.encode("utf-8", "replace"), key.encode())
