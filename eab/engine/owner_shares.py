"""How much of a forward pass the decoding runs of each owner get."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from eab.engine.generation import Generation

# Of one owner's decoding runs per pass, beside others: more only if those have more together.
OWNER_TOKENS: Final = 64


class Decoding(Protocol):
    """A run that decodes."""

    passes_left_out: int

    @property
    def owner(self) -> str:
        """Who asked for it."""
        ...

    @property
    def generation(self) -> Generation:
        """The state that the next pass serves."""
        ...


Run = TypeVar("Run", bound=Decoding)


def within_shares(decoding: Sequence[Run], alone: bool) -> list[Run]:
    """The runs that the share of their owner holds. One that is larger goes as often as it fits
    into the shares of all passes since it was served. An owner who is alone has no other limit than
    the pass; prompts that wait are those of others, too.
    """
    asked, taken = Counter[str](), Counter[str]()
    for handle in decoding:
        asked[handle.owner] += handle.generation.pending_tokens
    everyone, chosen = asked.total(), []
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
