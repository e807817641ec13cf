"""The policy `original`: the published rule of entropy-adaptive branching, to reproduce it."""

from collections.abc import Sequence

from eab.branching.policy import (
    Child,
    Leaf,
    Member,
    Thresholded,
    children_of,
    drawn_token,
    log_prob_of,
)
from eab.branching.random_streams import Purpose, uniform
from eab.branching.sampling import Predictions


class OriginalPolicy(Thresholded):
    """The published rule, with its behaviour at the budget; all leaves have weight 1 / leaves.

    Let b be max_paths minus the number of live paths at the start of the step. A path at or above
    the threshold gets k children if b >= k, b if 0 < b < k, and 2 if b <= 0. So it "forks" into a
    single child if b = 1 (the tree stops growing one path below its limit). At the limit it
    doubles the paths and keeps the most likely ones, which is beam search. Children are drawn
    without replacement. Finished paths do not count towards the budget and are never pruned.

    One thing is not reproduced: drawing tokens of probability zero if fewer tokens than children
    are possible.
    """

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        drawn = [[drawn_token(token)] for token in predictions.drawn]
        drawing = list(range(len(leaves)))  # batch indices that get another child
        for number in range(1, self._factor(len(leaves))):
            drawing = [i for i in drawing if predictions.entropies[i] >= self._threshold]
            uniforms = [
                uniform(self._config.seed, leaves[index].stream_key, step, Purpose.TOKEN, number)
                for index in drawing
            ]
            tokens = predictions.draw(drawing, uniforms, [drawn[index] for index in drawing])
            for index, token in zip(drawing, tokens, strict=True):
                drawn[index] += [] if token is None else [token]
        heirs = [tokens[0] for tokens in drawn]
        choices = [[(token, 1.0) for token in tokens] for tokens in drawn]
        return children_of(leaves, predictions, choices, heirs)

    def _factor(self, live: int) -> int:
        budget = self._config.max_paths - live
        return min(budget, self._config.branch_factor) if budget > 0 else 2

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep the max_paths most likely live paths and all finished ones."""
        live = [index for index, member in enumerate(population) if isinstance(member, Child)]
        by_log_prob = sorted(live, key=lambda index: -log_prob_of(population[index]))
        dropped = set(by_log_prob[self._config.max_paths :])
        weight = 1.0 / (len(population) - len(dropped))
        return [None if index in dropped else weight for index in range(len(population))]
