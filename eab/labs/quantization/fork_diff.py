"""Compares the runs of one prompt on two slightly different models: tokens and forks."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from eab.run import RunState

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
    for path in run.paths:
        if path.status == "forked":
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
