"""The server's responses in addition to the page: headers and health.

Also what a browser loads once, and Streamlit alone would send again and again: the code and style
of the board as files, and the style of the page as a part of the HTML. So what a page shows first
already has its place, before any script is loaded.
"""

import hashlib
import hmac
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnected

from app.server.rules import Rules, current
from eab.board import javascript, stylesheet

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


FOLDER: Final = "board"
# Safe to cache forever: a changed file gets a new name.
_FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
_KINDS: Final = {"js": "text/javascript", "css": "text/css"}
# The URL is relative to the page, which may be served under any path.
_LOADER: Final = """
const file = new URL("%s", document.baseURI);
const [{ default: show }, style] = await Promise.all([
  import(`${file}.js`),
  fetch(`${file}.css`).then((answer) => answer.text()),
]);
const sheet = new CSSStyleSheet();
sheet.replaceSync(style);
export default function (component) {
  component.parentElement.getRootNode().adoptedStyleSheets = [sheet];
  return show(component);
}
"""


def component() -> dict[str, str]:
    """The component for Streamlit: code that loads the two files, or their contents."""
    return {"js": _LOADER % f"{FOLDER}/{_name()}"} if is_served else _files()


async def board_file(request: Request) -> Response:
    """Serve one of the two files."""
    name, _, kind = request.path_params["name"].partition(".")
    if name != _name() or kind not in _KINDS:
        return PlainTextResponse("not found\n", status_code=404)
    return Response(_files()[kind], media_type=_KINDS[kind], headers=_FOREVER)


@cache
def _files() -> dict[str, str]:
    return {"js": javascript("streamlit"), "css": stylesheet()}


@cache
def _name() -> str:
    return hashlib.sha256("".join(_files().values()).encode()).hexdigest()[:16]


_STYLES: Final = Path(__file__).parents[1] / "widgets" / "static"
_SHEETS: Final = ("page.css", "single_pages.css", "opening.css")
_FOR_A_COPY: Final = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")

is_served = False  # set by app/serve.py; `streamlit run` alone does not serve these files


@cache
def style() -> str:
    """The rules of all style sheets of the page."""
    return "".join((_STYLES / name).read_text(encoding="utf-8") for name in _SHEETS)


class StyledPage:
    """ASGI middleware that adds the style to the end of every HTML page, after Streamlit's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "text/html" not in Headers(scope=scope).get("accept", ""):
            return await self._app(scope, receive, send)
        # The page whole and uncompressed; the browser's copy may have an earlier style.
        headers = [one for one in scope["headers"] if one[0] not in _FOR_A_COPY]
        page: list[Message] = []  # the messages of an HTML page

        async def send_styled(message: Message) -> None:
            if message["type"] == "http.response.start" and not _is_html(message):
                return await send(message)
            page.append(message)
            if page[0]["type"] != "http.response.start":
                await send(page.pop())  # of another file
            elif message["type"] == "http.response.body" and not message.get("more_body"):
                for one in _styled(page):
                    await send(one)

        await self._app({**scope, "headers": headers}, receive, send_styled)


def _is_html(started: Message) -> bool:
    return Headers(raw=started["headers"]).get("content-type", "").startswith("text/html")


def _styled(page: list[Message]) -> list[Message]:
    start, *bodies = page
    html = b"".join(one.get("body", b"") for one in bodies)
    html = html.replace(b"</body>", b"<style>%s</style></body>" % style().encode(), 1)
    headers = MutableHeaders(raw=start["headers"])
    for name in ("etag", "last-modified"):
        del headers[name]
    headers["content-length"] = str(len(html))
    return [{**start, "headers": headers.raw}, {"type": "http.response.body", "body": html}]
