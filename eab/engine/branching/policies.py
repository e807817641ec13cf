"""The branching policies: where a path forks, which children it gets, what they weigh, and which
paths the path limit drops.

- `fair` forks where the entropy is high. The sum of weight x f(leaf) is an unbiased estimate of E f
  under the processed distribution: in expectation, a child weighs its parent's weight times its
  probability, and pruning keeps every weight.
- `original` is the published rule of entropy-adaptive branching, to reproduce it.
- `arithmetic` follows evenly spaced codes over the tree; it is also unbiased.
- `stochastic-beam` draws different texts without replacement and weighs them by importance.
- `beam` is beam search: the most probable continuations at each step; it draws nothing.
- `best-first` continues the most probable paths, whatever their length; it draws nothing, too.
- `greedy` takes the most likely token and never forks; it probes a prompt for the rank
  threshold.
- `independent` is ordinary sampling, for comparison: max_paths texts that depend on the prompt
  only, not on each other.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from eab.config import BranchingConfig
from eab.engine.branching.arithmetic import ArithmeticPolicy
from eab.engine.branching.beam import BeamPolicy
from eab.engine.branching.best_first import BestFirstPolicy
from eab.engine.branching.fair import FairPolicy
from eab.engine.branching.own import GivenPolicy, check_is_there, own_policy
from eab.engine.branching.policy import (
    At,
    Child,
    Leaf,
    Member,
    Policy,
    Seeded,
    Thresholded,
    children_of,
    drawn_token,
    log_prob_of,
)
from eab.engine.branching.random_streams import Purpose, child_stream_key, uniform
from eab.engine.branching.sampling import Predictions
from eab.engine.branching.stochastic_beam import StochasticBeamPolicy


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


class GreedyPolicy(Seeded):
    """The most likely token, never a fork."""

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        best = [tokens[0] for tokens in predictions.top_tokens]
        return children_of(leaves, predictions, [[(token, 1.0)] for token in best], best)

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep the only path."""
        return [member.weight for member in population]

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """All tokens, because no path forks."""
        return [tokens[0] for tokens in predictions.top_tokens]


class IndependentPolicy(Seeded):
    """Ordinary sampling: the first step forks into max_paths children, drawn independently, so two
    may be equal. Later steps never fork.
    """

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        if step == 0:
            return [self._first_tokens(leaves[0], predictions)]
        drawn = [drawn_token(token) for token in predictions.drawn]
        return children_of(leaves, predictions, [[(token, 1.0)] for token in drawn], drawn)

    def _first_tokens(self, root: Leaf, predictions: Predictions) -> list[Child]:
        """The first child keeps the random stream of the run, so its text is that of a run without
        forks.
        """
        count, root_key = self._config.max_paths, root.stream_key
        stream_keys = [root_key, *(child_stream_key(root_key, 0, i) for i in range(1, count))]
        uniforms = self.uniforms([(stream_key, 0) for stream_key in stream_keys])
        tokens = [drawn_token(token) for token in predictions.draw([0] * count, uniforms)]
        log_probs = predictions.log_prob([0] * count, tokens)
        return [
            Child(replace(root, stream_key=stream_key), token, log_prob, root.weight / count, True)
            for stream_key, token, log_prob in zip(stream_keys, tokens, log_probs, strict=True)
        ]

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep all: there are never more than max_paths."""
        return [member.weight for member in population]

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """Paths fork only at the first step."""
        pairs = zip(predictions.drawn, at, strict=True)
        return [heir if step else None for heir, (_, step) in pairs]


def make_policy(
    config: BranchingConfig, threshold_nats: float, given: GivenPolicy | None = None
) -> Policy:
    """The policy of one run: the given one, or the one that the config names.

    Raises:
        ConfigError: The config names a custom policy that is not given, or `given` creates none.
    """
    check_is_there(config, given)
    if given is not None:
        return own_policy(given, config, threshold_nats)
    match config.policy:
        case "fair":
            return FairPolicy(config, threshold_nats)
        case "original":
            return OriginalPolicy(config, threshold_nats)
        case "arithmetic":
            return ArithmeticPolicy(config)
        case "stochastic-beam":
            return StochasticBeamPolicy(config)
        case "beam":
            return BeamPolicy(config)
        case "best-first":
            return BestFirstPolicy(config)
        case "greedy":
            return GreedyPolicy(config)
        case "independent":
            return IndependentPolicy(config)
    raise AssertionError(f"BranchingConfig lets no policy {config.policy} pass")
