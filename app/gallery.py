"""The recorded runs, and the recorded comparison of caches, that come with the project."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from eab import record
from eab.comparison import Comparison, fold_comparison, of_caches
from eab.events import Event

FOLDER: Final = Path(__file__).resolve().parent.parent / "assets" / "runs"
COMPARISON: Final = FOLDER.parent / "comparison"


@dataclass(frozen=True, slots=True)
class Recording:
    """A bundled run: its file, a title, and what it shows, in a sentence."""

    file: str
    title: str
    shows: str


@lru_cache(maxsize=1)
def recordings() -> tuple[Recording, ...]:
    """All bundled runs, the one to open with first."""
    return tuple(Recording(**entry) for entry in json.loads((FOLDER / "catalogue.json").read_text(encoding="utf-8")))


@lru_cache(maxsize=32)
def events_of(recording: Recording) -> tuple[Event, ...]:
    """The events of a bundled run."""
    return tuple(record.load(FOLDER / recording.file))


@lru_cache(maxsize=1)
def comparison() -> Comparison:
    """The bundled comparison: one run file per cache."""
    empty = of_caches()
    return fold_comparison(
        (event for name in empty.variants for event in record.load(COMPARISON / f"{name}.eab")), empty
    )
