"""Which runs go first: the queue of those that wait, rules for newcomers, and the shares of owners
and of memory. Imports no torch.
"""

from collections import Counter
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from eab.engine.handle import Handle


class Owned(Protocol):
    """A request that belongs to an owner."""

    @property
    def owner(self) -> str:
        """Who made the request; the queue is fair between owners."""
        ...


Waiting = TypeVar("Waiting", bound=Owned)


class FairQueue(Generic[Waiting]):
    """A queue in rounds, so that frequent requesters do not delay others. Not thread-safe: callers
    must lock it.

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


# Per pass and owner, if there are several; more if the others together have more.
OWNER_TOKENS: Final = 64
# While some run has no token yet, runs that have some get this many, in every eighth pass only.
TOKENS_WHILE_STARTING: Final = 64
STARTING_PERIOD: Final = 8

Runs: TypeAlias = "Sequence[Handle]"
# A run that may start, and the running runs whose memory it must leave them
Candidate: TypeAlias = "tuple[Handle, Runs]"


class FirstComeFirstServed:
    """A run starts when a slot is free, and keeps its memory until it ends."""

    def next_to_start(self, waiting: Runs, running: Runs, slots: int) -> list[Candidate]:
        """The runs that may start next if there is room, the first of them first."""
        return [(run, running) for run in waiting[:1]] if slots > 0 else []

    def memory_order(self, running: Runs) -> "list[Handle]":
        """The running runs, given the oldest first; the last gives its memory away first."""
        return [*running]

    def decoding_tokens(self, budget: int, awaited: int) -> int:
        """The most tokens of a pass for runs that have new tokens.

        Args:
            budget: Of the pass.
            awaited: In how many passes, with this one, some run has had no new token yet.
        """
        return budget


class NewcomersFirst(FirstComeFirstServed):
    """An owner without a running run gets one even without a free slot, and runs that were served
    long make room for it. While a run has no token, most passes leave out those that have some: its
    passes stay short, because the probe of a threshold takes many of them.
    """

    def next_to_start(self, waiting: Runs, running: Runs, slots: int) -> list[Candidate]:
        owners = {run.owner for run in running}
        new = [run for run in waiting if run.owner not in owners][:1]
        staying = [*running[:1], *(run for run in running[1:] if not run.slices)]
        return super().next_to_start(waiting, running, slots) + [(run, staying) for run in new]

    def memory_order(self, running: Runs) -> "list[Handle]":
        """The oldest, so that one always finishes, then those that were served least. Slices
        double, so runs seldom change places.
        """
        return [*running[:1], *sorted(running[1:], key=lambda run: run.slices)]

    def decoding_tokens(self, budget: int, awaited: int) -> int:
        if not awaited:
            return budget
        return 0 if awaited % STARTING_PERIOD else TOKENS_WHILE_STARTING


def runs_that_fit(runs: Runs, limit: int) -> "list[Handle]":
    """Pause runs, the last first, and free their rows if that is not enough, until at most `limit`
    bytes are needed. Returns the runs that continue.

    The first run always continues; its own `kv_limit_mib` bounds it.
    """
    going = list(runs)
    total = sum(run.kv_next for run in runs)
    while total > limit and len(going) > 1:
        last = going.pop()
        total += last.kv_held - last.kv_next
        if total > limit:
            total -= last.kv_held
            last.preempt()
            total += last.kv_held
    return going


class TokensServed:
    """The tokens that each owner was served (virtual token counter, arXiv 2401.00588)."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}

    @property
    def owners(self) -> set[str]:
        """The owners whose count is kept."""
        return set(self._tokens)

    def to(self, owner: str) -> int:
        """The count of an owner, which must have a run."""
        return self._tokens[owner]

    def add(self, owner: str, tokens: int) -> None:
        """Count the tokens of a pass that served this owner."""
        self._tokens[owner] += tokens

    def begin(self, owner: str, running: Set[str]) -> None:
        """Note that a run of an owner starts. A new or returning owner must not be served ahead of
        all others until it has caught up, so it starts at the lowest count of running owners.
        """
        if not running:
            self._tokens.clear()
        elif owner not in running:
            least = min(self._tokens[name] for name in running)
            # An owner that left with no higher count is treated as new if it returns.
            self._tokens = {
                name: tokens
                for name, tokens in self._tokens.items()
                if name in running or tokens > least
            }
            self._tokens[owner] = max(self._tokens.get(owner, 0), least)
        self._tokens.setdefault(owner, 0)


def within_shares(decoding: Runs, alone: bool) -> "list[Handle]":
    """The runs that fit into their owner's share. A larger run is served whenever the shares of all
    passes since it was last served add up to its tokens. A single owner (`alone`; owners whose
    prompts are not computed yet count, too) is limited only by the pass.
    """
    asked, taken = Counter[str](), Counter[str]()
    for handle in decoding:
        asked[handle.owner] += handle.generation.pending_tokens
    everyone, chosen = asked.total(), list["Handle"]()
    for handle in decoding:
        owner, tokens = handle.owner, handle.generation.pending_tokens
        others = everyone - asked[owner]
        share = asked[owner] if alone else max(OWNER_TOKENS, others)
        handle.passes_left_out += 1
        is_its_turn = not taken[owner] and tokens <= handle.passes_left_out * share
        if taken[owner] + tokens <= share or is_its_turn:
            taken[owner] += tokens
            handle.passes_left_out = 0
            chosen.append(handle)
    return chosen
