"""Sentences and a table about how weights in fewer bits changed a run."""

from typing import Final

from eab.formatting import counted
from eab.labs.quantization.fork_diff import ForkChange, Moved
from eab.token_text import visible

HEADINGS: Final = ("Fork after", "In B", "Entropy in A", "Entropy in B")
SHOWN: Final = 12  # rows of the table on the page
_LENGTH: Final = 60  # characters of the text before a fork


def moved_sentence(moved: Moved, name: str) -> str:
    """The first token that differs, how many forks appear or vanish, and how much weight moves."""
    if moved.first is None:
        forks = "" if moved.appeared or moved.vanished else " and the same forks"
        return (
            f"With {name}, the run has the same tokens{forks}; {moved.weight:.1%} of the weight "
            "moves between its texts."
        )
    return (
        f"With {name}, the trees differ from token {moved.first:,} on: "
        f"{counted(len(moved.vanished), 'fork')} of A {_verb(moved.vanished, 'vanish')}, "
        f"{counted(len(moved.appeared), 'fork')} of B {_verb(moved.appeared, 'appear')}. "
        f"{moved.weight:.1%} of the weight is on other texts."
    )


def moved_rows(moved: Moved) -> list[tuple[str, ...]]:
    """The forks that appear or vanish, with the entropies of both runs there."""
    changes = [("appears", change) for change in moved.appeared]
    changes += [("vanishes", change) for change in moved.vanished]
    changes.sort(key=lambda change: len(change[1].text))
    return [
        (_end(change.text), what, *(_entropy(value) for value in (change.a, change.b)))
        for what, change in changes
    ]


def _verb(forks: tuple[ForkChange, ...], verb: str) -> str:
    ending = "es" if verb.endswith("sh") else "s"
    return f"{verb}{ending}" if len(forks) == 1 else verb


def _end(text: str) -> str:
    words = visible(text)
    return f"…{words[-_LENGTH:]}" if len(words) > _LENGTH else words or "the prompt"


def _entropy(value: float | None) -> str:
    return "no such text" if value is None else f"{value:.4f} nats"
