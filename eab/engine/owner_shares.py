"""What each owner was served, and how much of a forward pass its decoding runs get."""

from collections import Counter
from collections.abc import Sequence, Set
from typing import Final

from eab.engine.handle import Handle

# Per pass for the decoding runs of one of several owners; more if the others have more together.
OWNER_TOKENS: Final = 64


class TokensServed:
    """The tokens that each owner was served (virtual token counter, arXiv 2401.00588)."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}

    @property
    def owners(self) -> set[str]:
        """Whose count is kept."""
        return set(self._tokens)

    def to(self, owner: str) -> int:
        """The count of an owner with a run."""
        return self._tokens[owner]

    def add(self, owner: str, tokens: int) -> None:
        """Count a part of a pass."""
        self._tokens[owner] += tokens

    def begin(self, owner: str, running: Set[str]) -> None:
        """A run of an owner begins. A new or returning owner must not be served before all others
        until it has caught up: its count begins with the least count of the running owners.
        """
        if not running:
            self._tokens.clear()
        elif owner not in running:
            least = min(self._tokens[name] for name in running)
            # An owner that left with no more than that returns as if new.
            self._tokens = {
                name: tokens
                for name, tokens in self._tokens.items()
                if name in running or tokens > least
            }
            self._tokens[owner] = max(self._tokens.get(owner, 0), least)
        self._tokens.setdefault(owner, 0)


def within_shares(decoding: Sequence[Handle], alone: bool) -> list[Handle]:
    """The runs that fit into the share of their owner. A larger run is served as often as it fits
    into the shares of all passes since it was last served. A single owner (`alone`; owners of
    waiting prompts count) has no limit but the pass.
    """
    asked, taken = Counter[str](), Counter[str]()
    for handle in decoding:
        asked[handle.owner] += handle.generation.pending_tokens
    everyone, chosen = asked.total(), list[Handle]()
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
