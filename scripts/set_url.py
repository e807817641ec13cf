"""Writes the address of the repository into every file that names it: `make url URL=https://...`."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FILES: Final = ("pyproject.toml", "CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml")


def set_url(url: str, root: Path = ROOT) -> None:
    """Replace the address that pyproject.toml has.

    Raises:
        ValueError: It is no address that begins with https://.
    """
    url = url.rstrip("/")
    if not re.fullmatch(r"https://[\w.-]+(:\d+)?(/[\w.~-]+)+", url):
        raise ValueError(f"{url!r} must be an address such as https://example.org/eab-explorer")
    project = tomllib.loads((root / FILES[0]).read_text(encoding="utf-8"))["project"]
    for name in FILES:
        file = root / name
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(project["urls"]["Repository"], url), encoding="utf-8")


if __name__ == "__main__":
    try:
        set_url(*sys.argv[1:])
    except (TypeError, ValueError) as error:
        sys.exit(f"Error: {error}")
