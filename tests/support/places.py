"""Paths of the project for the tests."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAIN = str(ROOT / "app" / "main.py")
