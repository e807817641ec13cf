"""Model folders with a changed configuration."""

import json
from pathlib import Path
from typing import Any


def with_config(folder: Path, change: dict[str, Any]) -> str:
    """Make these changes in the folder's config.json, and return the name of the folder."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    return str(folder)
