"""Saved runs: one SQLite file on the machine that serves the page.

The environment variable EAB_STORE names the file, or is `off`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from platformdirs import user_data_path

from app.server import rules
from app.server.named_store import NamedStore
from app.server.store_file import OFF, VARIABLE, Kind
from eab import record
from eab.events import Event

_MOST_BYTES: Final = 256 * 2**20
RUNS: Final[Kind[Sequence[Event]]] = Kind(
    one="run",
    many="runs",
    application_id=0x45414273,  # "EABs"
    most=200,
    most_bytes=_MOST_BYTES,
    largest=_MOST_BYTES,
    smaller="Make a shorter run",
    dumps=record.dumps,
    loads=record.loads,
)
RunStore: TypeAlias = NamedStore[Sequence[Event]]


def default_store() -> RunStore | None:
    """The store that EAB_STORE names, or the user's default; None if saved runs are off."""
    path = store_path()
    return NamedStore(path, RUNS) if path is not None else None


def store_path() -> Path | None:
    """The file of saved runs; None if this server saves nothing."""
    named = os.environ.get(VARIABLE, "").strip()
    if named.lower() == OFF or not rules.current().save_runs:
        return None
    if named:
        return Path(os.path.expanduser(named))
    return user_data_path("eab-explorer", appauthor=False) / "runs.sqlite"
