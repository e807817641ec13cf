"""The classes of a server in files next to the saved runs, so that a restart does not end them.

A file holds the key of a class, so only the server's user can read the folder. It does not hold who
answered, or what the lecturer shows: the lecturer's tab sends that again.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from app.server.class_questions import AskedQuestion
from eab.errors import ClassError
from eab.record.whole_file import write_whole

_LOGGER: Final = logging.getLogger("eab")
_SUFFIX: Final = ".class.json"
_LARGEST: Final = 2**22  # bytes


@dataclass(frozen=True, slots=True)
class KeptClass:
    """The part of a class that survives a restart."""

    owner: str
    key: str
    code: str
    asked: tuple[AskedQuestion, ...] = ()
    is_open: bool = False  # whether the last question is on the screens
    ended: bool = False


class KeptClasses:
    """One file per class; without a folder, nothing is kept. A class whose file cannot be written
    continues.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def all(self) -> list[KeptClass]:
        """The classes that had not ended when the server stopped; damaged files are left alone."""
        files = [] if self._folder is None else sorted(self._folder.glob(f"*{_SUFFIX}"))
        return [kept for file in files if (kept := _read(file)) is not None]

    def keep(self, kept: KeptClass) -> None:
        """Save the class as it is now; delete its file if it has ended."""
        if self._folder is None:
            return
        file = self._folder / f"{kept.code}{_SUFFIX}"
        try:
            if kept.ended:
                file.unlink(missing_ok=True)
                return
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(file, msgspec.json.encode(kept))
        except (OSError, ValueError) as error:  # ValueError: text that is not Unicode
            _LOGGER.warning("the class is not kept for a restart: %s", error)


NOWHERE: Final = KeptClasses(None)


def _read(file: Path) -> KeptClass | None:
    try:
        if file.stat().st_size > _LARGEST:
            raise ClassError(f"it has more than {_LARGEST:,} bytes")
        return msgspec.json.decode(file.read_bytes(), type=KeptClass)
    except (OSError, ValueError, msgspec.MsgspecError, ClassError) as error:
        _LOGGER.warning("%s is not the file of a class: %s", file, error)
        return None
