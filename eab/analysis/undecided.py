"""What nobody has explored: the beginnings of texts of which no text of a run is known."""

import math
from dataclasses import dataclass

from eab.analysis.labels import Labelling
from eab.run import RunState

TokenIds = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first tokens of texts of which nothing is known."""

    tokens: TokenIds  # from the root
    probability: float


def undecided(run: RunState, labelling: Labelling) -> list[Beginning]:
    """The beginnings of all texts that have no label and that nobody has explored, the most
    probable first. Only the candidates that the run lists can be named; the rest is missing.
    """
    known: set[TokenIds] = set()
    found: dict[TokenIds, float] = {}
    for _, tokens, is_complete, marks, decided in labelling.decisions(run):
        ids, probability = tuple(token.id for token in tokens), 1.0
        ends = [len(ids), *(count for count, _ in marks), *([decided[0]] if decided else [])]
        known.update(ids[:count] for count in range(len(ids)))
        for count, token in enumerate(tokens[: min(ends)]):
            for candidate in token.candidates:
                found[*ids[:count], candidate.token] = probability * candidate.probability
            probability *= 0.0 if token.log_prob is None else math.exp(token.log_prob)
        if not (is_complete or marks or decided):
            found[ids] = probability  # the path limit dropped it
        else:
            known.add(ids)
    left = [Beginning(ids, p) for ids, p in found.items() if p > 0 and ids not in known]
    return sorted(left, key=lambda each: -each.probability)
