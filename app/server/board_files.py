"""The board's code and style as files, which a browser loads once. Streamlit would send them with
every message to the board.
"""

import hashlib
from functools import cache
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

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

is_served = False  # set by app/serve.py; `streamlit run` alone does not serve these files


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
