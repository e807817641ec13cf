"""Folders of models whose configuration says something else."""

import json
from pathlib import Path
from typing import Any


def with_config(folder: Path, change: dict[str, Any]) -> str:
    """The name of the folder, after this was changed in its config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    return str(folder)
