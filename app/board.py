"""The board as a Streamlit component: one registration, and the bookkeeping of what each tab has been sent.

The JavaScript is inline in every message of the component, so its modules are joined into one text here.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import streamlit as st

from eab.figures.board import board_message
from eab.run import Run

FOLDER: Final = Path(__file__).resolve().parent.parent / "assets" / "board"
MODULES: Final = ("svg.js", "tree.js", "charts.js", "inspector.js", "controls.js", "board.js")
OVERLAP: Final = 8  # messages: the browser may miss some of them
KEYFRAME: Final = 60  # messages

_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)


def joined_javascript() -> str:
    """All modules as one: imports go, and only the default export stays."""
    return "".join(
        _EXPORT.sub("", _IMPORT.sub("", _COMMENT.sub("", (FOLDER / name).read_text(encoding="utf-8"))))
        for name in MODULES
    )


_mount: Final[Callable[..., object]] = st.components.v2.component(
    "eab_board", css=(FOLDER / "board.css").read_text(encoding="utf-8"), js=joined_javascript()
)


@dataclass
class _Sent:
    """Steps that the messages of one run had reached, the newest last."""

    key: str = ""
    steps: list[int] = field(default_factory=list)

    def resync(self) -> None:
        self.steps.clear()


def message(run: Run, key: str, mode: Literal["live", "replay"], autoplay: bool) -> dict[str, Any]:
    """What to tell the browser about the run; `key` names it, so that the board starts afresh with another run.

    A recorded run is told whole, once. A live one is told from a few messages back, now and then whole.
    """
    sent = _sent()
    if sent.key != key:
        sent.key = key
        sent.resync()
    since = _since(sent) if mode == "live" else 0
    sent.steps.append(max(0, len(run.steps) - 1))
    return board_message(run, since) | {"run": key, "mode": mode, "autoplay": autoplay}


def mount(message: dict[str, Any]) -> None:
    """Put the board on the page with this message."""
    _mount(key="board", data=message, on_resync_change=_sent().resync)


def _sent() -> _Sent:
    sent: _Sent = st.session_state.setdefault("board_sent", _Sent())
    return sent


def _since(sent: _Sent) -> int:
    whole = len(sent.steps) % KEYFRAME == 0
    return 0 if whole else sent.steps[max(0, len(sent.steps) - OVERLAP)]
