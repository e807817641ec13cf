"""Locates the files that come with the project: the pages, the models, the recorded runs.

In a checkout they are below its root. An installed wheel has them in `eab/_bundle` (see
pyproject.toml). `HOME` is the folder with `app/`, `pages/` and `assets/`.
"""

from pathlib import Path
from typing import Final

_EAB = Path(__file__).resolve().parent
_BUNDLE = _EAB / "_bundle"

HOME: Final = _BUNDLE if _BUNDLE.is_dir() else _EAB.parent
ASSETS: Final = HOME / "assets"
