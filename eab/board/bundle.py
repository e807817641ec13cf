"""The board's JavaScript and style, for whoever puts it on a page: Streamlit, a notebook, a page
that stands alone.

The modules in `eab/board/static/` are written as modules; each page takes them as one text, without
imports.
"""

import re
from pathlib import Path
from typing import Final, Literal

FOLDER: Final = Path(__file__).parent / "static"
Host = Literal["streamlit", "widget", "page"]

_MODULES: Final = (
    "svg",
    "arrange",
    "tree",
    "charts",
    "controls",
    "inspector",
    "finder",
    "table",
    "pictures",
    "records",
    "replay",
    "board",
)
_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)


def javascript(host: Host) -> str:
    """All modules and the one that feeds the board in this host; only a default export stays."""
    sources = ((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in (*_MODULES, host))
    return "".join(_EXPORT.sub("", _IMPORT.sub("", _COMMENT.sub("", source))) for source in sources)


def stylesheet() -> str:
    """The style of the board; each rule is for `.eab` alone."""
    return (FOLDER / "board.css").read_text(encoding="utf-8")
