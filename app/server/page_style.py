"""The style of the page around the board, part of the HTML itself: what a page shows first already
has its place, before any script is loaded. Streamlit alone would send it with every redraw.
"""

from functools import cache
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FOLDER: Final = Path(__file__).parents[1] / "widgets" / "static"
_FILES: Final = ("page.css", "single_pages.css", "opening.css")
_FOR_A_COPY: Final = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")

is_served = False  # set by app/serve.py; under `streamlit run` alone, the page sends its style


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
