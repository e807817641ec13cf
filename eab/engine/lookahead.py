"""What is known of a live path: its text, how much of it went through the model, and what the model
said about the steps to come.

Without speculation a path knows at most the step that is decided next. With it, a forward pass may
confirm several
guessed tokens of a path, which then is ahead of the others and waits for them: decisions are made
step by step, for all paths together, and so come out the same.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from eab.branching.sampling import Predictions

MOST_AHEAD = 16  # steps: a path that would go farther sits out the next passes


@dataclass(slots=True)
class Lookahead:
    """One live path.

    text: prompt and all tokens that are certain to come, `read` of them in the KV cache. lines:
    predictions of the
    steps that are not decided yet, the next one first. drafted: what the pass under way tries
    beyond the text.
    """

    text: list[int]
    read: int = 0
    lines: deque[tuple[Predictions, int]] = field(default_factory=deque)
    draft_tokens: list[int] = field(default_factory=list)

    def child(self, token: int) -> "Lookahead":
        """What a child of this path knows that begins with `token`."""
        return Lookahead([*self.text, token], self.read)

    def unread(self, most: int) -> list[int]:
        """The next tokens to go through the model, at most so many."""
        return self.text[self.read : self.read + most]

    def confirm(
        self, predictions: Predictions, first: int, foreseen: Sequence[int | None], to_itself: bool
    ) -> tuple[int, int]:
        """Take in what the pass said: lines `first`, ... belong to the last unread token and to
        each drafted one.

        foreseen: per line the token that must follow it; None where the path may fork. to_itself:
        keep a copy of its own lines, so that one path that is ahead does not keep the predictions
        of all.
        -> how many drafted tokens were right, and of how many it could be said.
        """
        accepted = 0
        while (
            accepted < len(self.draft_tokens) and foreseen[accepted] == self.draft_tokens[accepted]
        ):
            accepted += 1
        lines = [(predictions, first + line) for line in range(accepted + 1)]
        if to_itself:
            own = Predictions.joined(lines)
            lines = [(own, line) for line in range(accepted + 1)]
        self.lines += lines
        self.text += self.draft_tokens[:accepted]
        self.read = len(self.text)
        following = foreseen[accepted]
        if following is not None:
            self.text.append(following)
        verified = accepted + (accepted < len(self.draft_tokens) and following is not None)
        self.draft_tokens = []
        return accepted, verified
