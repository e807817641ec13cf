"""Saved sweeps, in a file next to the saved runs, under the same rules."""

from typing import Final

from app.server.named_store import NamedStore
from app.server.store import store_path
from app.server.store_file import Kind
from eab.labs.tuning.report import TuningReport, dumps, loads

SWEEPS: Final[Kind[TuningReport]] = Kind(
    one="sweep",
    many="sweeps",
    application_id=0x45414274,  # "EABt"
    most=100,
    most_bytes=128 * 2**20,
    largest=16 * 2**20,
    smaller="Sweep fewer values, prompts or seeds",
    dumps=dumps,
    loads=loads,
)


def default_sweep_store() -> NamedStore[TuningReport] | None:
    """The store of sweeps; None if runs are not saved either."""
    runs = store_path()
    if runs is None:
        return None
    return NamedStore(runs.with_name(f"{runs.stem}-sweeps.sqlite"), SWEEPS)
