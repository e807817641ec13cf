"""What nobody has explored: the beginnings of texts of which no text of a run is known."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from eab.analysis.labels import Labelling
from eab.run import RunState, Token


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first tokens of texts of which nothing is known."""

    tokens: tuple[int, ...]  # ids, from the root
    probability: float


def undecided(run: RunState, labelling: Labelling, most: int) -> list[Beginning]:
    """The most probable beginnings, at most `most`, of texts that have no label and that nobody has
    explored. Only the candidates that the run lists can be named; the rest is missing.
    """
    known = _Known()
    for text, marks, decided in labelling.decisions(run):
        ends = [len(text.tokens), *(count for count, _ in [*marks, *filter(None, [decided])])]
        # such as where the path limit dropped it
        is_open = text.text is None and not (marks or decided)
        known.add(text.tokens, min(ends), is_open)
    return known.left(most)


class _Known:
    """The known texts as a tree of nodes, each a beginning; node 0 has no token."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}  # by node and the token after it
        self._texts: list[tuple[list[int], int]] = [([], 0)]  # of each node a text, and its tokens
        self._inner: set[int] = set()
        # Probabilities: of a token that may follow a node, and of a node of which no more is known
        self._candidates: dict[tuple[int, int], float] = {}
        self._open: dict[int, float] = {}

    def add(self, tokens: Sequence[Token], end: int, is_open: bool) -> None:
        """Add a text. Other tokens may follow its first ones, up to number `end`."""
        node, probability, ids = 0, 1.0, [token.id for token in tokens]
        for count, token in enumerate(tokens):
            for candidate in token.candidates if count < end else ():
                share = probability * candidate.probability
                self._candidates[node, candidate.token] = share
            probability *= 0.0 if token.log_prob is None else math.exp(token.log_prob)
            self._inner.add(node)
            following = self._next.setdefault((node, token.id), len(self._texts))
            if following == len(self._texts):
                self._texts.append((ids, count + 1))
            node = following
        if is_open:
            self._open[node] = probability

    def left(self, most: int) -> list[Beginning]:
        """The most probable of what is not known."""
        left = [
            (probability, node, [token])
            for (node, token), probability in self._candidates.items()
            if probability > 0 and (node, token) not in self._next
        ]
        left += [
            (p, node, []) for node, p in self._open.items() if p > 0 and node not in self._inner
        ]
        chosen = nlargest(most, left, key=lambda each: each[0])
        return [
            Beginning((*self._texts[node][0][: self._texts[node][1]], *token), probability)
            for probability, node, token in chosen
        ]
