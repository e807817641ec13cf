"""What a browser loads once, and Streamlit alone would send again and again: the code and style of
the board as files, and the style of the page around it as a part of the HTML.
So what a page shows first already has its place, before any script is loaded.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eab.board import bundle

FOLDER: Final = "board"
# Safe to cache forever: a changed file gets a new name.
_HEADERS: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
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
    return Response(_files()[kind], media_type=_KINDS[kind], headers=_HEADERS)


@cache
def _files() -> dict[str, str]:
    return {"js": bundle.javascript("streamlit"), "css": bundle.stylesheet()}


@cache
def _name() -> str:
    return hashlib.sha256("".join(_files().values()).encode()).hexdigest()[:16]


_FOLDER: Final = Path(__file__).parents[1] / "widgets" / "static"
_FILES: Final = ("page.css", "single_pages.css", "opening.css")
_FOR_A_COPY: Final = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")

is_served = False  # set by app/serve.py; `streamlit run` alone does not serve these files


@cache
def style() -> str:
    """The rules of all style sheets of the page."""
    return "".join((_FOLDER / name).read_text(encoding="utf-8") for name in _FILES)


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
