"""The decoding state of one live path: its tokens, how many of them are computed, and the
predictions that no decision has used yet.

Without speculation, a path has predictions for at most the next step. With speculation, one forward
pass may accept several draft tokens of a path. The path is then ahead of the others and waits for
them, because every step is decided for all paths together. So speculation changes no decision.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eab.branching.sampling import Predictions
from eab.token_text import StopStrings

MAX_AHEAD = 16  # steps; a path that is this far ahead skips the next passes


@dataclass(slots=True)
class Lookahead:
    """One live path."""

    tokens: list[int]  # the prompt and all tokens that are certain to follow it
    num_computed: int = 0  # how many of `tokens` are in the KV cache; the others are pending
    # For each step that is not decided yet, the next one first: the predictions of a forward pass,
    # and the index in them
    predictions: deque[tuple[Predictions, int]] = field(default_factory=deque)
    # What the current pass verifies after the pending tokens
    draft_tokens: list[int] = field(default_factory=list)
    # How many of `tokens` were searched for stop strings, including those of the prompt
    searched: int = 0
    tail: bytes = b""  # the end of the searched text (see `eab.run.stop_strings`)
    # The number of `tokens` up to the end of the first stop string, which may lie ahead of the step
    # that is being decided; 0 if there is none
    stops_at: int = 0

    def child(self, token: int) -> "Lookahead":
        """The state of a child of this path whose first token is `token`."""
        tokens = [*self.tokens, token]
        return Lookahead(tokens, self.num_computed, searched=self.searched, tail=self.tail)

    def search(self, stop: StopStrings, text_of: Callable[[int], str]) -> None:
        """Search the new tokens for a stop string; for control tokens, `text_of` is empty."""
        while stop and not self.stops_at and self.searched < len(self.tokens):
            self.tail, cut = stop.search(self.tail, text_of(self.tokens[self.searched]))
            self.searched += 1
            self.stops_at = self.searched if cut else 0

    @property
    def num_pending(self) -> int:
        """How many of `tokens` are still to be computed."""
        return len(self.tokens) - self.num_computed

    def pending(self, limit: int) -> list[int]:
        """The next tokens to compute, at most `limit` of them."""
        return self.tokens[self.num_computed : self.num_computed + limit]

    def verify(
        self, predictions: Predictions, first: int, forced: Sequence[int | None], own_copy: bool
    ) -> tuple[int, int]:
        """Take over the path's predictions from a pass, and accept or reject its draft tokens.

        Args:
            first: Index of the prediction after the last pending token; the predictions after each
                draft token follow it.
            forced: For each of these predictions, the token that must follow; None where the path
                may fork.
            own_copy: Copy the path's predictions. Otherwise one path that is ahead would keep the
                predictions of all paths in memory.

        Returns:
            How many draft tokens are accepted, and how many are verified: the accepted ones, and
            the first rejected one. Where the path may fork, a draft token cannot be verified.
        """
        accepted = 0
        while accepted < len(self.draft_tokens) and forced[accepted] == self.draft_tokens[accepted]:
            accepted += 1
        own = [(predictions, first + index) for index in range(accepted + 1)]
        if own_copy:
            copy = Predictions.joined(own)
            own = [(copy, index) for index in range(accepted + 1)]
        self.predictions += own
        self.tokens += self.draft_tokens[:accepted]
        self.num_computed = len(self.tokens)
        following = forced[accepted]
        if following is not None:
            self.tokens.append(following)
        verified = accepted + (accepted < len(self.draft_tokens) and following is not None)
        self.draft_tokens = []
        return accepted, verified
