"""The order in which waiting runs start. Not thread-safe: callers must lock it."""

from typing import Generic, Protocol, TypeVar


class Owned(Protocol):
    """A request that belongs to an owner."""

    @property
    def owner(self) -> str:
        """Who made the request; the queue is fair between owners."""
        ...


Waiting = TypeVar("Waiting", bound=Owned)


class FairQueue(Generic[Waiting]):
    """A queue in rounds, so that frequent requesters do not delay others.

    An entry joins the first round after that of its owner's previous entry. Within a round,
    entries start in order of arrival (start-time fair queueing; Goyal, Vin and Cheng 1996).
    """

    def __init__(self) -> None:
        # Pairs of round and entry, the next to start first. Replaced, never changed in place, so
        # that other threads can read `entries` at any time.
        self._waiting: list[tuple[int, Waiting]] = []
        self._round = 0  # the round of the entry that started last
        self._last_rounds: dict[str, int] = {}  # owner -> round of its entry that started last

    @property
    def entries(self) -> list[Waiting]:
        """The waiting entries, the next to start first."""
        return [entry for _, entry in self._waiting]

    def add(self, new: Waiting) -> None:
        """Queue an entry. Its owner's entries that left before they started do not count."""
        waiting = [number for number, other in self._waiting if other.owner == new.owner]
        after_last = self._last_rounds.get(new.owner, -1) + 1
        number = max([self._round, after_last, *(last + 1 for last in waiting)])
        # Stable: arrival order within a round.
        self._waiting = sorted([*self._waiting, (number, new)], key=lambda pair: pair[0])

    def pop(self) -> Waiting:
        """Remove and return the entry that starts next."""
        return self.take(self.entries[0])

    def take(self, entry: Waiting) -> Waiting:
        """Remove and return an entry that starts now, possibly ahead of others."""
        number = next(number for number, other in self._waiting if other is entry)
        self.remove(entry)
        self._round = max(self._round, number)
        self._last_rounds = {
            owner: number for owner, number in self._last_rounds.items() if number >= self._round
        }
        self._last_rounds[entry.owner] = self._round
        return entry

    def remove(self, entry: Waiting) -> None:
        """Remove an entry that will not start."""
        self._waiting = [pair for pair in self._waiting if pair[1] is not entry]
