"""The policy `arithmetic`: evenly spaced codes over the tree of all texts.

It is arithmetic sampling (Vilnis et al., 2023, arXiv 2210.15458) with shared prefixes.
"""

from collections.abc import Mapping, Sequence
from math import log

from eab.config import BranchingConfig
from eab.engine.branching.policy import (
    At,
    Child,
    Leaf,
    Member,
    Seeded,
    children_of,
    drawn_token,
    stream_key_of,
)
from eab.engine.branching.random_streams import ROOT
from eab.engine.branching.sampling import Predictions


class ArithmeticPolicy(Seeded):
    """Arithmetic sampling that computes a prefix shared by several codes only once.

    Each text owns an interval of [0, 1) as long as its probability, in the order of its tokens. The
    codes (i + u) / max_paths, with one random number u, choose the texts in whose intervals
    they lie. So a prefix of probability p gets max_paths x p codes, rounded up or down, and its
    weight is its share of the codes. A path forks where its codes choose different tokens; the
    threshold and the branch factor have no effect.

    A prefix whose interval is no longer than the distance between two codes has at most one code,
    whose place in the interval is uniform and independent of all earlier decisions. From there on
    the path draws from its own random stream, as a path without forks does: its code would run out
    of digits, and this way draft tokens can be verified.
    """

    def __init__(self, config: BranchingConfig) -> None:
        super().__init__(config)
        self._codes: dict[int, tuple[float, ...]] = {}  # by stream key; none if it draws by itself
        self._least_log_prob = -log(config.max_paths)  # above it, a path can have several codes
        if config.max_paths > 1:
            [shift] = self.uniforms([(ROOT, 0)])  # with one code, it draws the first token
            codes = ((code + shift) / config.max_paths for code in range(config.max_paths))
            self._codes[ROOT] = tuple(codes)

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        chosen = self._chosen(leaves, predictions)
        heirs = [next(iter(inside)) for inside in chosen]
        families = children_of(leaves, predictions, list(map(_shares, chosen)), heirs)
        for family, inside in zip(families, chosen, strict=True):
            self._hand_on(family, inside, step)
        return families

    def _chosen(
        self, leaves: Sequence[Leaf], predictions: Predictions
    ) -> list[dict[int, list[float]]]:
        """For each leaf, the tokens that its codes choose, each with the places of these codes in
        the token's interval; without codes, the token that the leaf draws.
        """
        codes = [self._codes.get(leaf.stream_key, ()) for leaf in leaves]
        pairs = [(index, code) for index, own in enumerate(codes) for code in own]
        draws = predictions.draw_inside([index for index, _ in pairs], [code for _, code in pairs])
        chosen: list[dict[int, list[float]]] = [
            {} if own else {drawn_token(predictions.drawn[index]): [0.0]}
            for index, own in enumerate(codes)
        ]
        for (index, _), draw in zip(pairs, draws, strict=True):
            chosen[index].setdefault(drawn_token(draw.token), []).append(draw.inside)
        return chosen

    def _hand_on(
        self, family: Sequence[Child], inside: Mapping[int, Sequence[float]], step: int
    ) -> None:
        """Pass to each child the codes that chose it, if it can have several."""
        if self._codes.pop(family[0].leaf.stream_key, None) is None:
            return
        for child in family:
            if child.leaf.log_prob + child.token_log_prob > self._least_log_prob:
                self._codes[stream_key_of(child, step)] = tuple(inside[child.token])

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep all: there are never more than max_paths."""
        return [member.weight for member in population]

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """The tokens of paths without codes, which never fork."""
        return [
            None if stream_key in self._codes else token
            for token, (stream_key, _) in zip(predictions.drawn, at, strict=True)
        ]


def _shares(inside: Mapping[int, Sequence[float]]) -> list[tuple[int, float]]:
    """Tokens with their shares of the codes."""
    total = sum(map(len, inside.values()))
    return [(token, len(codes) / total) for token, codes in inside.items()]
