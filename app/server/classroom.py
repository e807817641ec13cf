"""A class: what the lecturer shows, who follows, and what was asked.

The key is for leading the class; the code is only for following and answering. What is shown is a
frozen value from the pages, passed on unchanged. `KeptClasses` keeps the questions and the number
of answers across restarts of the server.

Classes are kept in files next to the saved runs. A file holds the key of a class, so only the
server's user can read the folder. It does not hold who answered, or what the lecturer shows: the
lecturer's tab sends that again.
"""

import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from app.server.class_questions import AskedQuestion, ClassQuestion, answers_table
from eab.errors import ClassError
from eab.figures.tables import as_csv
from eab.formatting import counted, quoted
from eab.run.record.files import write_whole

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


ENDS_AFTER: Final = 2 * 3600.0  # seconds without the lecturer
ENDS_EMPTY_AFTER: Final = 600.0  # seconds with nobody connected
MAX_MEMBERS: Final = 300  # tabs that follow one class
MAX_QUESTIONS: Final = 200
CODE_SIGNS: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"  # no look-alikes
CODE_LENGTH: Final = 6

Wake = Callable[[], None]


@dataclass(frozen=True, slots=True)
class ClassState:
    """A class at one moment, as its members see it."""

    version: int = 0  # increases with every change
    shown: Any = None  # what the lecturer shows; None before the first view
    question: AskedQuestion | None = None
    following: int = 0  # number of tabs that follow
    lecturer_here: bool = True  # whether a tab of the lecturer is connected
    ended: bool = False


class Classroom:
    """One class. Safe to use from several threads."""

    def __init__(
        self,
        owner: str = "",
        now: Callable[[], float] = time.monotonic,
        connected: Callable[[str], bool] = lambda _session: True,
        kept: KeptClass | None = None,
        keep: Callable[[KeptClass], None] = lambda _kept: None,
    ) -> None:
        """Start a class, or resume a kept one. `keep` is called after each change with what a
        restart of the server must not lose. That does not include the answers to an open question.
        """
        kept = kept or KeptClass(owner, secrets.token_urlsafe(24), _new_code())
        self.owner: Final = kept.owner
        self.key: Final = kept.key
        self.code: Final = kept.code
        self._now, self._connected, self._keep = now, connected, keep
        self._lock = threading.Lock()
        self._asked: list[AskedQuestion] = [*kept.asked]
        self._state = ClassState(question=self._asked[-1] if kept.is_open and kept.asked else None)
        self._lecturer_seen = self._anybody_seen = (
            now()
        )  # when the lecturer, and when anybody, was last connected
        self._lecturers: dict[str, Wake] = {}
        self._followers: dict[str, Wake] = {}
        self._answers: dict[str, int] = {}  # by member, to the question on the screens
        self._keep_it()

    # ---- for everybody

    @property
    def state(self) -> ClassState:
        """The class now, without members who have lost the connection."""
        with self._lock:
            self._drop_disconnected()
            return self._state

    def join(self, session: str, wake: Wake) -> ClassState:
        """Follow the class, or keep following it. `wake` is called after each change, from any
        thread, and must return immediately. Raises ClassError if the class is over or full.
        """
        with self._lock:
            self._must_go_on()
            self._drop_disconnected()
            if session not in self._followers and len(self._followers) >= MAX_MEMBERS:
                raise ClassError(
                    f"{MAX_MEMBERS} students follow this class, which is the limit; one of them "
                    "must leave first"
                )
            self._followers[session] = wake
            self._count()
            return self._state

    def leave(self, session: str) -> None:
        """Stop following."""
        with self._lock:
            self._followers.pop(session, None)
            self._count()

    def answer(self, session: str, number: int, option: int) -> None:
        """Answer the question on the screens; the answer can be changed until the reveal. Raises
        ClassError if the question is closed, or has no such option, or the tab does not follow.
        """
        with self._lock:
            self._must_go_on()
            asked = self._state.question
            if asked is None or asked.number != number or asked.revealed:
                raise ClassError("this question can no longer be answered")
            if not 0 <= option < len(asked.question.options):
                raise ClassError(f"the question has no option number {option}")
            if session not in self._followers:
                raise ClassError("join the class before you answer")
            if self._answers.get(session) != option:
                self._answers[session] = option
                self._tell(self._counted(asked), self._lecturers)

    def answer_of(self, session: str, number: int) -> int | None:
        """This tab's answer to the question on the screens; None if it has not answered."""
        with self._lock:
            asked = self._state.question
            return self._answers.get(session) if asked and asked.number == number else None

    # ---- for the lecturer, who has found the class by its key

    def lead(self, session: str, wake: Wake) -> ClassState:
        """Register a tab of the lecturer; see `join`."""
        with self._lock:
            self._lecturer_acts()
            self._lecturers[session] = wake
            self._drop_disconnected()
            return self._state

    def show(self, shown: Any) -> None:
        """Set what the lecturer's screen shows; do nothing if it is the same as before."""
        with self._lock:
            self._lecturer_acts()
            if shown != self._state.shown:
                self._tell(replace(self._state, shown=shown), self._followers)

    def ask(self, question: ClassQuestion) -> None:
        """Put a question on the screens of the class, in place of the previous one."""
        with self._lock:
            self._lecturer_acts()
            if len(self._asked) >= MAX_QUESTIONS:
                raise ClassError(
                    f"the class has had {MAX_QUESTIONS} questions, which is the limit; download "
                    "the answers and start another class"
                )
            self._answers.clear()
            asked = AskedQuestion(len(self._asked) + 1, question, (0,) * len(question.options))
            self._asked.append(asked)
            self._tell(replace(self._state, question=asked))
            self._keep_it()

    def reveal(self) -> None:
        """Show the class its answers and the model's probabilities."""
        with self._lock:
            self._lecturer_acts()
            if self._state.question is not None and not self._state.question.revealed:
                self._asked[-1] = replace(self._state.question, revealed=True)
                self._tell(replace(self._state, question=self._asked[-1]))
                self._keep_it()

    def dismiss(self) -> None:
        """Take the question off the screens; its answers stay in the CSV file."""
        with self._lock:
            self._lecturer_acts()
            if self._state.question is not None:
                self._answers.clear()
                self._tell(replace(self._state, question=None))
                self._keep_it()

    def csv(self) -> str:
        """All questions so far with their number of answers; see `answers_table`."""
        with self._lock:
            return as_csv(answers_table(self._asked))

    def end(self) -> None:
        """End the class for everybody."""
        with self._lock:
            self._lecturer_acts()
            self._end()

    # ---- with the lock held

    def _lecturer_acts(self) -> None:
        self._must_go_on()
        self._lecturer_seen = self._anybody_seen = self._now()

    def _must_go_on(self) -> None:
        if self._state.ended:
            raise ClassError("this class has ended; ask for the code of another one")

    def _drop_disconnected(self) -> None:
        """Drop disconnected members, and end a class that has been left alone for too long."""
        for members in (self._lecturers, self._followers):
            for session in [member for member in members if not self._connected(member)]:
                del members[session]
        now = self._now()
        self._lecturer_seen = now if self._lecturers else self._lecturer_seen
        self._anybody_seen = now if self._lecturers or self._followers else self._anybody_seen
        if now - self._lecturer_seen > ENDS_AFTER or now - self._anybody_seen > ENDS_EMPTY_AFTER:
            self._end()
        self._count()

    def _count(self) -> None:
        following, here = len(self._followers), bool(self._lecturers)
        if following != self._state.following:
            self._tell(replace(self._state, following=following), self._lecturers)
        if here != self._state.lecturer_here:
            self._tell(replace(self._state, lecturer_here=here))

    def _counted(self, asked: AskedQuestion) -> ClassState:
        chosen = list(self._answers.values())
        counts = tuple(chosen.count(option) for option in range(len(asked.question.options)))
        self._asked[-1] = replace(asked, counts=counts)
        return replace(self._state, question=self._asked[-1])

    def _end(self) -> None:
        if not self._state.ended:
            self._tell(replace(self._state, ended=True, shown=None, question=None))
            self._answers.clear()
            self._keep_it()

    def _keep_it(self) -> None:
        is_open, ended = self._state.question is not None, self._state.ended
        asked = tuple(self._asked)
        self._keep(KeptClass(self.owner, self.key, self.code, asked, is_open, ended))

    def _tell(self, state: ClassState, *whom: dict[str, Wake]) -> None:
        """Set the state and wake these groups of members; all members if none are given."""
        self._state = replace(state, version=self._state.version + 1)
        for members in whom or (self._lecturers, self._followers):
            for wake in members.values():
                wake()


def _new_code() -> str:
    return "".join(secrets.choice(CODE_SIGNS) for _ in range(CODE_LENGTH))


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
        given = key.encode("utf-8", "replace")
        with self._lock:
            going_on = self._going_on()
        found = (each for each in going_on if hmac.compare_digest(given, each.key.encode()))
        room = next(found, None)
        if room is None:
            raise ClassError("the class of this lecturer's link has ended; start another")
        return room

    def _class(self, owner: str, kept: KeptClass | None = None) -> Classroom:
        return Classroom(owner, connected=self._connected, kept=kept, keep=self._keep)

    def _going_on(self) -> list[Classroom]:
        self._classes = [room for room in self._classes if not room.state.ended]
        return self._classes
