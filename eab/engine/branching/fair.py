"""The policy `fair`: unbiased weights that sum to 1, also where a path limit drops paths (Fearnhead
and Clifford, 2003), and with another rule for where a path forks.
"""

import math
from collections.abc import Sequence

from eab.config import BranchingConfig
from eab.engine.branching.own import NextToken, PathSoFar, Rule, plain_name
from eab.engine.branching.policy import (
    At,
    Child,
    Leaf,
    Member,
    Seeded,
    Thresholded,
    children_of,
    drawn_token,
)
from eab.engine.branching.random_streams import Purpose, pruning_uniform, uniform
from eab.engine.branching.sampling import Predictions, RestDraw, listed
from eab.errors import ConfigError


def fearnhead_clifford(weights: Sequence[float], limit: int, uniform: float) -> list[float | None]:
    """Keep at most `limit` of the weights. Returns the new weights, with None for dropped ones. The
    expectation of each new weight is the old one.

    Let c be such that sum(min(1, w / c)) = limit. Weights of at least c remain as they are. The
    others are kept with probability w / c, by systematic resampling in the given order, and then
    weigh c. The sum of the weights does not change.

    Args:
        uniform: A random number in [0, 1).
    """
    if len(weights) <= limit:
        return list(weights)
    order = sorted(range(len(weights)), key=lambda index: -weights[index])
    kept, c = _threshold([weights[index] for index in order], limit)
    result: list[float | None] = [None] * len(weights)
    for index in order[:kept]:
        result[index] = weights[index]
    light = sorted(index for index in order[kept:] if weights[index] > 0)
    light_total = math.fsum(weights[index] for index in light)
    seen, picked = 0.0, 0
    for index in light:
        seen += weights[index]
        share = 1.0 if index == light[-1] else seen / light_total
        # Rounding must not add or lose a weight.
        reached = min(limit - kept, math.floor(share * (limit - kept) + uniform))
        if reached > picked:
            same = math.isclose(weights[index], c, rel_tol=1e-12)  # differs by rounding only
            result[index], picked = weights[index] if same else c, reached
    return result


def _threshold(descending: Sequence[float], limit: int) -> tuple[int, float]:
    """How many of the heaviest weights remain as they are, and c."""
    for kept in range(limit):
        c = math.fsum(descending[kept:]) / (limit - kept)
        if descending[kept] <= c * (1 - 1e-12):  # not if it equals c up to rounding
            return kept, c
    return limit, 0.0


class FairPolicy(Thresholded):
    """Unbiased branching.

    At a fork, a path of weight W gets as children the most likely tokens: at most k - 1, and only
    those with at least `branch_min_p` of the largest probability. Each weighs W x p. One more
    token, drawn from the rest, weighs W x (1 - their probabilities). A rest below that limit is
    kept at random, like a path at the path limit, and the others share what it leaves.
    """

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        heirs = predictions.drawn
        choices: list[list[tuple[int, float]]] = [[(drawn_token(heir), 1.0)] for heir in heirs]
        for index, leaf in enumerate(leaves):
            if self._may_fork(leaf, predictions, index, step):
                choices[index] = self._shares(predictions, index, leaf, step)
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

    def _least(self, predictions: Predictions, index: int) -> float:
        """The smallest probability with which a token is an alternative of its own."""
        return self._config.branch_min_p * predictions.top_probabilities[index][0]

    def _head(self, predictions: Predictions, index: int) -> list[int]:
        """The most likely tokens that become children, without those of probability zero."""
        probabilities = predictions.top_probabilities[index]
        least = self._least(predictions, index)
        count = min(self._config.branch_factor - 1, len(probabilities))
        while count and (probabilities[count - 1] == 0 or probabilities[count - 1] < least):
            count -= 1
        return predictions.top_tokens[index][:count]

    def _shares(
        self, predictions: Predictions, index: int, leaf: Leaf, step: int
    ) -> list[tuple[int, float]]:
        """Tokens with their shares of the parent's weight; the shares sum to 1.

        The rest is one child: the heir, if it is not in the head, else a token drawn from the rest.
        """
        heir, head = drawn_token(predictions.drawn[index]), self._head(predictions, index)
        shares = predictions.top_probabilities[index][: len(head)]
        least, rest_share = self._least(predictions, index), 1.0 - math.fsum(shares)
        rest = predictions.rests[index] if heir in head else heir
        if rest is not None and rest_share > 0:
            if rest_share < least and (rest == heir or self._keeps(rest_share, least, leaf, step)):
                scale = (1.0 - least) / (1.0 - rest_share)
                shares, rest_share = [scale * share for share in shares], least
            if rest_share >= least:
                shares, head = [*shares, rest_share], [*head, rest]
        total = math.fsum(shares)
        return [(token, share / total) for token, share in zip(head, shares, strict=True)]

    def _keeps(self, rest_share: float, least: float, leaf: Leaf, step: int) -> bool:
        """Whether a rest below `least`, without the heir, becomes a child. Together with the cases
        in which the heir is in it, that happens with probability rest_share / least.
        """
        number = uniform(self._config.seed, leaf.stream_key, step, Purpose.TOKEN, 2)
        return number < (rest_share / least - rest_share) / (1.0 - rest_share)

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep at most max_paths live and finished paths."""
        weights = [member.weight for member in population]
        return fearnhead_clifford(
            weights, self._config.max_paths, pruning_uniform(self._config.seed, step)
        )


class RulePolicy(FairPolicy):
    """Unbiased for any rule, because the rule does not see which token is drawn."""

    def __init__(self, config: BranchingConfig, rule: Rule) -> None:
        super().__init__(config, threshold_nats=0.0)  # every path may fork, until the rule is asked
        self._rule = rule

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """None is known in advance, because the rule may depend on weights, which change."""
        return Seeded.forced_tokens(self, predictions, at)

    def _may_fork(self, leaf: Leaf, predictions: Predictions, index: int, step: int) -> bool:
        count = listed(self._config)  # there are more if another run of the pass asked for them
        seen = NextToken(
            step,
            predictions.entropies[index],
            tuple(predictions.top_tokens[index][:count]),
            tuple(predictions.top_probabilities[index][:count]),
        )
        said = self._rule(seen, PathSoFar(leaf.path, leaf.weight, leaf.log_prob))
        if said not in (True, False):
            raise ConfigError(
                f"the rule {plain_name(self._rule)} returned a {type(said).__name__}; it must "
                "return True or False. A function that makes a policy names its first parameter "
                "config"
            )
        return bool(said) and leaf.weight >= self._config.min_fork_weight
