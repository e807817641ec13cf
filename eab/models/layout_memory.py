"""Remembers the fastest layout across program runs, in a small JSON file.

The environment variable EAB_LAYOUTS is the path of the file, or `off`. The file only saves time: if
it cannot be read or written, it is treated as missing.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

VARIABLE: Final = "EAB_LAYOUTS"
OFF: Final = "off"


def recall(case: str) -> str:
    """The layout remembered for this machine and these shapes; empty if there is none."""
    return _read().get(case, "")


def remember(case: str, layout: str) -> None:
    """Store the layout; the file is replaced as a whole."""
    path = _path()
    if path is None:
        return
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(_read() | {case: layout}, indent=1), encoding="utf-8")
        os.replace(scratch, path)


def _read() -> dict[str, str]:
    path = _path()
    with suppress(OSError, ValueError):
        measured = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
        if isinstance(measured, dict):
            return {str(case): str(layout) for case, layout in measured.items()}
    return {}


def _path() -> Path | None:
    named = os.environ.get(VARIABLE, "")
    if named == OFF:
        return None
    if named:
        return Path(named)
    return user_cache_path("eab-explorer", appauthor=False) / "layouts.json"
