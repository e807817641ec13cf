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

from collections.abc import Mapping, Sequence
from math import log

from msgspec.structs import replace

from eab.config import BranchingConfig
from eab.engine.branching.beam import BeamPolicy, BestFirstPolicy, StochasticBeamPolicy
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
    stream_key_of,
)
from eab.engine.branching.random_streams import ROOT, Purpose, child_stream_key, uniform
from eab.engine.branching.sampling import Predictions


class ArithmeticPolicy(Seeded):
    """Arithmetic sampling (Vilnis et al., 2023, arXiv 2210.15458) that computes a prefix shared by
    several codes only once.

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
