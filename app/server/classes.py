"""The classes of this server, including those that survived a restart."""

import threading
from collections.abc import Callable

from app.server.classroom import Classroom
from app.server.kept_classes import NOWHERE, KeptClass, KeptClasses
from eab.errors import ClassError
from eab.formatting import counted, quoted


class Classes:
    """Classes by code and by key. Safe to use from several threads."""

    def __init__(
        self,
        most: int,
        per_visitor: int,
        connected: Callable[[str], bool],
        kept: KeptClasses = NOWHERE,
    ) -> None:
        self._most, self._per_visitor, self._connected = most, per_visitor, connected
        self._lock = threading.Lock()
        self._keep = kept.keep
        self._classes = [self._class(each.owner, each) for each in kept.all()[:most]]

    @property
    def allowed(self) -> bool:
        """Whether this server allows classes."""
        return self._most > 0

    def start(self, owner: str) -> Classroom:
        """Start a class. Raises ClassError if there are too many already."""
        with self._lock:
            going_on = self._going_on()
            if sum(room.owner == owner for room in going_on) >= self._per_visitor:
                raise ClassError(
                    f"a visitor can have {counted(self._per_visitor, 'class')} at a time; end "
                    "one first, with its lecturer's link"
                )
            if len(going_on) >= self._most:
                raise ClassError(
                    f"this server has {len(going_on)} classes, which is its limit; try again "
                    "when one has ended"
                )
            room = self._class(owner)
            self._classes.append(room)
            return room

    def by_code(self, code: str) -> Classroom:
        """The class with this code, in any case and spacing. Raises ClassError if there is none."""
        given = "".join(code.split()).upper()
        with self._lock:
            room = next((each for each in self._going_on() if each.code == given), None)
        if room is None:
            raise ClassError(f"there is no class {quoted(given)} on this server; check the code")
        return room

    def by_key(self, key: str) -> Classroom:
        """The class that this key leads. Raises ClassError if there is none, or it has ended."""
        with self._lock:
            room = next((each for each in self._going_on() if each.leads(key)), None)
        if room is None:
            raise ClassError("the class of this lecturer's link has ended; start another")
        return room

    def _class(self, owner: str, kept: KeptClass | None = None) -> Classroom:
        return Classroom(owner, connected=self._connected, kept=kept, keep=self._keep)

    def _going_on(self) -> list[Classroom]:
        self._classes = [room for room in self._classes if not room.state.ended]
        return self._classes
