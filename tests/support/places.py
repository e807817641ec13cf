"""Where the tests find the project."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAIN = str(ROOT / "app" / "main.py")
