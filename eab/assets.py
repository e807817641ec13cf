"""Where the bundled files are: models, recorded runs, measurements, the icon."""

from pathlib import Path
from typing import Final

ASSETS: Final = Path(__file__).resolve().parent.parent / "assets"
