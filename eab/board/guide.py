"""Where a lesson leads the board. Each guide applies once, so the user is free to move on."""

from dataclasses import dataclass
from typing import Any, Literal

from eab.run import RunState

Drawer = Literal["tables", "help"]
# The entropy chart; what the board says of forks and weights, of KV rows, and of answers
Topic = Literal["entropy", "forks", "rows", "answers"]


@dataclass(frozen=True, slots=True)
class Guide:
    """What the board should show next."""

    id: str  # the board follows each id only once
    cursor: int | None = None  # step at which to put the cursor; None leaves it in place
    # Path and index of the token to select; None selects nothing
    token: tuple[int, int] | None = None
    drawer: Drawer | None = None  # what to open over the charts if no token is selected
    highlight: str = ""  # the panel to frame; "KV cache", or empty
    hides: tuple[Topic, ...] = ()  # what the lesson has not introduced yet

    def as_message(self) -> dict[str, Any]:
        """The guide as JSON values; see Guide in eab/board/static/types.d.ts."""
        return {
            "id": self.id,
            "cursor": self.cursor,
            "token": None if self.token is None else list(self.token),
            "drawer": self.drawer,
            "highlight": self.highlight,
            "hides": list(self.hides),
        }


def first_fork(run: RunState) -> tuple[int, int] | None:
    """Path and index of the first token that a fork chose; None without forks."""
    children = [path for path in run.paths if path.parent >= 0 and path.tokens]
    first = min(children, key=lambda path: (path.born, path.id), default=None)
    return None if first is None else (first.id, 0)


def highest_entropy(run: RunState) -> tuple[int, int] | None:
    """Path and index of the token where the model was least sure; None without tokens."""
    tokens = [(path.id, index) for path in run.paths for index in range(len(path.tokens))]
    return max(tokens, key=lambda at: run.paths[at[0]].tokens[at[1]].entropy or 0.0, default=None)
