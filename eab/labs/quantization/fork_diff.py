"""Compares the runs of one prompt on two slightly different models: tokens and forks, as values
and as text.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from eab.formatting import counted
from eab.run import RunState
from eab.token_text import visible

Prefix: TypeAlias = tuple[int, ...]  # token ids after the prompt


@dataclass(frozen=True, slots=True)
class ForkChange:
    """A place where only one of the runs forks."""

    text: str  # text of the tokens before the fork
    a: float | None  # entropy (nats) of the next token in each run; None if the run lacks the text
    b: float | None


@dataclass(frozen=True, slots=True)
class Moved:
    """The differences between two runs."""

    first: int | None  # number of the first token (from 1) that only one run has, if any
    appeared: tuple[ForkChange, ...]  # forks that only the second run has, in order
    vanished: tuple[ForkChange, ...]  # forks that only the first run has, in order
    weight: float  # total variation distance between the weights of their texts, 0 to 1


def same_request(a: RunState, b: RunState) -> bool:
    """Whether both runs had the same request and model, in different weight formats."""
    one, other = a.started, b.started
    return (
        (one.model.name, one.prompt_tokens, one.config)
        == (other.model.name, other.prompt_tokens, other.config)
    ) and one.model.weights != other.model.weights


def moved(a: RunState, b: RunState) -> Moved:
    """Compare two runs of the same prompt tokens."""
    entropies = _entropies(a), _entropies(b)
    forks = _forks(a), _forks(b)
    only_one = _prefixes(a) ^ _prefixes(b)
    appeared, vanished = (
        tuple(
            ForkChange(text, *(own.get(prefix) for own in entropies))
            for prefix, text in sorted(here.items(), key=lambda fork: (len(fork[0]), fork))
            if prefix not in there
        )
        for here, there in (forks[::-1], forks)
    )
    return Moved(min(map(len, only_one), default=None), appeared, vanished, _variation(a, b))


def _texts(run: RunState) -> Iterator[tuple[Prefix, float]]:
    for leaf in run.leaves():
        yield tuple(token.id for token in run.tokens(leaf.id)), leaf.weight


def _prefixes(run: RunState) -> set[Prefix]:
    return {text[:end] for text, _ in _texts(run) for end in range(1, len(text) + 1)}


def _entropies(run: RunState) -> Mapping[Prefix, float]:
    """The entropy of the token after each prefix that some text of the run has."""
    entropies: dict[Prefix, float] = {}
    for path in run.paths:
        before: Prefix = ()
        for token in run.tokens(path.id):
            entropies.setdefault(before, token.entropy or 0.0)
            before = (*before, token.id)
    return entropies


def _forks(run: RunState) -> Mapping[Prefix, str]:
    forks = {}
    for path in run.forks():
        tokens = list(run.tokens(path.id))
        forks[tuple(token.id for token in tokens)] = "".join(token.text for token in tokens)
    return forks


def _variation(a: RunState, b: RunState) -> float:
    weights: tuple[dict[Prefix, float], ...] = ({}, {})
    for own, run in zip(weights, (a, b), strict=True):
        for text, weight in _texts(run):
            own[text] = own.get(text, 0.0) + weight
    texts = weights[0].keys() | weights[1].keys()
    return (
        math.fsum(abs(weights[0].get(text, 0.0) - weights[1].get(text, 0.0)) for text in texts) / 2
    )


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
