"""The policy `fair`: unbiased weights that sum to 1."""

import math
from collections.abc import Sequence

from eab.branching.policy import At, Child, Leaf, Member, Thresholded, children_of, drawn_token
from eab.branching.pruning import fearnhead_clifford
from eab.branching.random_streams import Purpose, pruning_uniform, uniform
from eab.branching.sampling import Predictions, RestDraw


class FairPolicy(Thresholded):
    """Unbiased branching.

    At a fork, a path of weight W gets the k-1 most likely tokens as children, with weight W x p
    each, and one token drawn from the rest, with weight W x (1 - their probabilities).
    """

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        heirs = predictions.drawn
        choices: list[list[tuple[int, float]]] = [[(drawn_token(heir), 1.0)] for heir in heirs]
        for index, leaf in enumerate(leaves):
            if self._may_fork(leaf, predictions, index, step):
                choices[index] = self._shares(predictions, index, drawn_token(heirs[index]))
        return children_of(leaves, predictions, choices, heirs)

    def rest_draws(self, predictions: Predictions, first: int, at: At) -> list[RestDraw]:
        """One token from outside the head, where the path may fork."""
        return [
            RestDraw(
                index,
                uniform(self._config.seed, stream_key, step, Purpose.TOKEN, 1),
                self._head(predictions, index),
            )
            for index, (stream_key, step) in enumerate(at, first)
            if predictions.entropies[index] >= self._threshold
        ]

    def _may_fork(self, leaf: Leaf, predictions: Predictions, index: int, step: int) -> bool:
        """Any rule that does not depend on the draw keeps the weights unbiased."""
        is_unsure = predictions.entropies[index] >= self._threshold
        return is_unsure and leaf.weight >= self._config.min_fork_weight

    def _head(self, predictions: Predictions, index: int) -> list[int]:
        """The k-1 most likely tokens, without those of probability zero."""
        count = min(self._config.branch_factor - 1, len(predictions.top_tokens[index]))
        probabilities = predictions.top_probabilities[index]
        while count and probabilities[count - 1] == 0:
            count -= 1
        return predictions.top_tokens[index][:count]

    def _shares(self, predictions: Predictions, index: int, heir: int) -> list[tuple[int, float]]:
        """Tokens with their shares of the parent's weight; the shares sum to 1.

        If the heir is not in the head, it is the token drawn from the rest.
        """
        head, rest = self._head(predictions, index), predictions.rests[index]
        probabilities = predictions.top_probabilities[index][: len(head)]
        shares = list(zip(head, probabilities, strict=True))
        rest_share = 1.0 - math.fsum(probabilities)
        if rest is not None and rest_share > 0:
            shares.append((rest if heir in head else heir, rest_share))
        total = math.fsum(share for _, share in shares)
        return [(token, share / total) for token, share in shares]

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep at most max_paths live and finished paths."""
        weights = [member.weight for member in population]
        return fearnhead_clifford(
            weights, self._config.max_paths, pruning_uniform(self._config.seed, step)
        )
