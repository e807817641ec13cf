"""The board's code and style, which a browser loads once: Streamlit would send them with every
message to the board.
"""

import hashlib
from functools import cache
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from eab.board import bundle

FOLDER: Final = "board"
# A change has a new name.
_HEADERS: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
_KINDS: Final = {"js": "text/javascript", "css": "text/css"}
# The address is relative to the page, which may be served below any path.
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

is_served = False  # set by app/serve.py; with `streamlit run` alone nobody would answer


def component() -> dict[str, str]:
    """What Streamlit sends to the browser: where the two files are, or what is in them."""
    return {"js": _LOADER % f"{FOLDER}/{_name()}"} if is_served else _files()


async def board_file(request: Request) -> Response:
    """Answer with one of the two files."""
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
