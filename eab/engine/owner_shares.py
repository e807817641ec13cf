"""Tokens served to each owner, and the share of a forward pass that its decoding runs get."""

from collections import Counter
from collections.abc import Sequence, Set
from typing import Final

from eab.engine.handle import Handle

# Per pass and owner, if there are several; more if the others together have more.
OWNER_TOKENS: Final = 64


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


def within_shares(decoding: Sequence[Handle], alone: bool) -> list[Handle]:
    """The runs that fit into their owner's share. A larger run is served whenever the shares of all
    passes since it was last served add up to its tokens. A single owner (`alone`; owners whose
    prompts are not computed yet count, too) is limited only by the pass.
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
