"""The recorded runs and comparisons that come with the project."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from eab import record
from eab.analysis.sweep import Sweep, cache_sweep, draft_length_sweep, fold_sweep
from eab.assets import ASSETS
from eab.events import Event

FOLDER: Final = ASSETS / "runs"
CACHES: Final = FOLDER.parent / "comparison"
DRAFT_LENGTHS: Final = FOLDER.parent / "speculation"


@dataclass(frozen=True, slots=True)
class Recording:
    """A bundled run: its file, a title, and what it shows, in a sentence."""

    file: str
    title: str
    shows: str


@lru_cache(maxsize=1)
def recordings() -> tuple[Recording, ...]:
    """All bundled runs, the one to open with first."""
    return tuple(
        Recording(**entry)
        for entry in json.loads((FOLDER / "catalogue.json").read_text(encoding="utf-8"))
    )


@lru_cache(maxsize=32)
def events_of(recording: Recording) -> tuple[Event, ...]:
    """The events of a bundled run."""
    return tuple(record.load(FOLDER / recording.file))


@lru_cache(maxsize=1)
def caches() -> Sweep:
    """The bundled comparison of caches."""
    return _comparison(cache_sweep(), CACHES)


@lru_cache(maxsize=1)
def draft_lengths() -> Sweep:
    """The bundled comparison of draft lengths, of the draft model."""
    return _comparison(draft_length_sweep("model"), DRAFT_LENGTHS)


def _comparison(empty: Sweep, folder: Path) -> Sweep:
    """One run file per variant."""
    return fold_sweep(
        (event for name in empty.variants for event in record.load(file_of(name, folder))), empty
    )


def file_of(variant: str, folder: Path) -> Path:
    """Where the recorded run of this variant is."""
    return folder / f"{variant.replace(' ', '-')}{record.SUFFIX}"
