"""Branching policies: where a path forks, which children it gets, what they weigh, and which paths
the path limit drops.

`fair` keeps the sum of weight x f(leaf) an unbiased estimate of E f under the processed
distribution: in expectation, a child weighs its parent's weight times its probability, and pruning
keeps every weight. `original` is the published rule of entropy-adaptive branching, to reproduce it
(see OriginalPolicy). `greedy` takes the most likely token and never forks; it probes a prompt for
the quantile threshold. `independent` is ordinary sampling, for comparison: max_paths texts that
depend on the prompt only, not on each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from eab.branching.pruning import fearnhead_clifford
from eab.branching.random_streams import child_stream_key, pruning_uniform, uniform
from eab.branching.sampling import Predictions, RestDraw
from eab.config import BranchingConfig


@dataclass(frozen=True, slots=True)
class Leaf:
    """A live or finished path.

    Attributes:
        path: Its id.
        stream_key: Key of its random stream (see eab.branching.random_streams).
        weight: Its weight.
        log_prob: ln of the probability of its tokens.
        token: Its last token; -1 if it has none.
        finished: Whether it is complete.
    """

    path: int
    stream_key: int
    weight: float
    log_prob: float
    token: int = -1
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Child:
    """One continuation of a leaf by one token.

    Attributes:
        leaf: The leaf.
        token: The token.
        token_log_prob: ln of the token's probability.
        weight: The weight of the child.
        heir: Whether it is the child that would have come without a fork.
    """

    leaf: Leaf
    token: int
    token_log_prob: float
    weight: float
    heir: bool


Member = Leaf | Child  # of the population: a finished leaf, or a continuation; in tree order


At: TypeAlias = Sequence[tuple[int, int]]  # the stream key of a path, and a step


class Policy(Protocol):
    """Branching decisions of one run."""

    def uniforms(self, at: At) -> list[float]:
        """For each path and step the random number, in [0, 1), that draws its next token."""
        ...

    def rest_draws(self, predictions: Predictions, first: int, at: At) -> list[RestDraw]:
        """What else `branch` may need to be drawn.

        Args:
            predictions: Of this run and of others.
            first: Batch index of this run's first row.
            at: The path and the step of each of its rows.
        """
        ...

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """The children of each live leaf; two or more are a fork.

        Args:
            leaves: The live leaves; leaf i has batch index i in the predictions.
            predictions: Of this step, with what the policy wanted to be drawn.
            step: The step.
        """
        ...

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """The new weight of each member, or None to drop it.

        Args:
            population: Finished leaves and children, in tree order.
            step: The step.
        """
        ...

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """The tokens that are certain to follow, whatever happens to other paths.

        Speculative decoding compares draft tokens with them.

        Args:
            predictions: Of any paths and steps, with drawn tokens.
            at: The path and the step of each batch index.

        Returns:
            For each batch index, the token that the path must take; None where it may fork.
        """
        ...


class _Seeded:
    """The random numbers of every policy: that of a path's own next token is the first of its
    stream at the step.
    """

    def __init__(self, config: BranchingConfig) -> None:
        self._config = config

    def uniforms(self, at: At) -> list[float]:
        """See Policy.uniforms."""
        return [uniform(self._config.seed, stream_key, step, 0) for stream_key, step in at]

    def rest_draws(self, predictions: Predictions, first: int, at: At) -> list[RestDraw]:
        """See Policy.rest_draws: none."""
        return []


class FairPolicy(_Seeded):
    """Unbiased branching.

    At a fork, a path of weight W gets the k-1 most likely tokens as children, with weight W x p
    each, and one token drawn from the rest, with weight W x (1 - their probabilities).
    """

    def __init__(self, config: BranchingConfig, threshold_nats: float) -> None:
        super().__init__(config)
        self._threshold = threshold_nats

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        heirs = predictions.drawn
        choices: list[list[tuple[int, float]]] = [[(_drawn(heir), 1.0)] for heir in heirs]
        for index, leaf in enumerate(leaves):
            if self._may_fork(leaf, predictions.entropies[index]):
                choices[index] = self._shares(predictions, index, _drawn(heirs[index]))
        return _children(leaves, predictions, choices, heirs)

    def rest_draws(self, predictions: Predictions, first: int, at: At) -> list[RestDraw]:
        """See Policy.rest_draws: one token besides the head, where the path may fork."""
        return [
            RestDraw(
                index,
                uniform(self._config.seed, stream_key, step, 1),
                self._head(predictions, index),
            )
            for index, (stream_key, step) in enumerate(at, first)
            if predictions.entropies[index] >= self._threshold
        ]

    def _may_fork(self, leaf: Leaf, entropy: float) -> bool:
        """Any rule that does not depend on the draw keeps the weights unbiased."""
        return entropy >= self._threshold and leaf.weight >= self._config.min_fork_weight

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
        """See Policy.prune: at most max_paths live and finished paths remain."""
        weights = [member.weight for member in population]
        return fearnhead_clifford(
            weights, self._config.max_paths, pruning_uniform(self._config.seed, step)
        )

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """See Policy.forced_tokens.

        The minimum weight to fork is not considered, because the weight of a path may still
        increase.
        """
        return _drawn_below_threshold(predictions, self._threshold)


class OriginalPolicy(_Seeded):
    """The published rule, with its behaviour at the budget; all leaves have weight 1 / leaves.

    Let b be max_paths minus the number of live paths at the start of the step. A path at or above
    the threshold gets k children if b >= k, b if 0 < b < k, and 2 if b <= 0. So it "forks" into a
    single child if b = 1 (the tree stops growing one path below its limit). At the limit it
    doubles the paths and keeps the most likely ones, which is beam search. Children are drawn
    without replacement. Finished paths do not count for the budget and are never pruned.

    One thing is not reproduced: drawing tokens of probability zero if fewer tokens than children
    are possible.
    """

    def __init__(self, config: BranchingConfig, threshold_nats: float) -> None:
        super().__init__(config)
        self._threshold = threshold_nats

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        drawn = [[_drawn(token)] for token in predictions.drawn]
        drawing = list(range(len(leaves)))  # batch indices that get another child
        for number in range(1, self._factor(len(leaves))):
            drawing = [
                index for index in drawing if predictions.entropies[index] >= self._threshold
            ]
            uniforms = [
                uniform(self._config.seed, leaves[index].stream_key, step, number)
                for index in drawing
            ]
            tokens = predictions.draw(
                drawing, uniforms, excluded=[drawn[index] for index in drawing]
            )
            for index, token in zip(drawing, tokens, strict=True):
                drawn[index] += [] if token is None else [token]
        heirs = [tokens[0] for tokens in drawn]
        return _children(
            leaves, predictions, [[(token, 1.0) for token in tokens] for tokens in drawn], heirs
        )

    def _factor(self, live: int) -> int:
        budget = self._config.max_paths - live
        return min(budget, self._config.branch_factor) if budget > 0 else 2

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """See Policy.prune: the max_paths most likely live paths remain, and all finished ones."""
        live = [index for index, member in enumerate(population) if isinstance(member, Child)]
        by_log_prob = sorted(live, key=lambda index: -_log_prob(population[index]))
        dropped = set(by_log_prob[self._config.max_paths :])
        weight = 1.0 / (len(population) - len(dropped))
        return [None if index in dropped else weight for index in range(len(population))]

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """See Policy.forced_tokens."""
        return _drawn_below_threshold(predictions, self._threshold)


class GreedyPolicy(_Seeded):
    """The most likely token, never a fork."""

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        best = [tokens[0] for tokens in predictions.top_tokens]
        return _children(leaves, predictions, [[(token, 1.0)] for token in best], best)

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """See Policy.prune: there is one path only."""
        return [member.weight for member in population]

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """See Policy.forced_tokens: no path forks."""
        return [tokens[0] for tokens in predictions.top_tokens]


class IndependentPolicy(_Seeded):
    """Ordinary sampling: the first step forks into max_paths children, drawn independently, so two
    may be equal. Later steps never fork.
    """

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        if step == 0:
            return [self._first_tokens(leaves[0], predictions)]
        drawn = [_drawn(token) for token in predictions.drawn]
        return _children(leaves, predictions, [[(token, 1.0)] for token in drawn], drawn)

    def _first_tokens(self, root: Leaf, predictions: Predictions) -> list[Child]:
        """The first child keeps the random stream of the run, so its text is that of a run without
        forks.
        """
        count, seed = self._config.max_paths, self._config.seed
        stream_keys = [
            root.stream_key,
            *(child_stream_key(root.stream_key, 0, index) for index in range(1, count)),
        ]
        tokens = [
            _drawn(*predictions.draw([0], [uniform(seed, stream_key, 0, 0)]))
            for stream_key in stream_keys
        ]
        log_probs = predictions.log_prob([0] * count, tokens)
        return [
            Child(replace(root, stream_key=stream_key), token, log_prob, root.weight / count, True)
            for stream_key, token, log_prob in zip(stream_keys, tokens, log_probs, strict=True)
        ]

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """See Policy.prune: there are never more than max_paths."""
        return [member.weight for member in population]

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """See Policy.forced_tokens: paths fork at the first step only."""
        return [
            heir if step else None for heir, (_, step) in zip(predictions.drawn, at, strict=True)
        ]


def make_policy(config: BranchingConfig, threshold_nats: float) -> Policy:
    """The policy that the config names."""
    if config.policy == "greedy":
        return GreedyPolicy(config)
    if config.policy == "independent":
        return IndependentPolicy(config)
    if config.policy == "original":
        return OriginalPolicy(config, threshold_nats)
    return FairPolicy(config, threshold_nats)


def grown(child: Child, path: int, weight: float, step: int) -> Leaf:
    """The leaf that a child becomes; only the heir keeps the random stream of its parent."""
    parent = child.leaf
    stream_key = (
        parent.stream_key if child.heir else child_stream_key(parent.stream_key, step, child.token)
    )
    return Leaf(path, stream_key, weight, _log_prob(child), child.token)


def _children(
    leaves: Sequence[Leaf],
    predictions: Predictions,
    choices: Sequence[Sequence[tuple[int, float]]],
    heirs: Sequence[int | None],
) -> list[list[Child]]:
    """Children from (token, share of the parent's weight) pairs of each leaf."""
    indices = [index for index, chosen in enumerate(choices) for _ in chosen]
    log_probs = iter(
        predictions.log_prob(indices, [token for chosen in choices for token, _ in chosen])
    )
    return [
        [
            Child(leaf, token, next(log_probs), leaf.weight * share, token == heir)
            for token, share in chosen
        ]
        for leaf, chosen, heir in zip(leaves, choices, heirs, strict=True)
    ]


def _drawn_below_threshold(predictions: Predictions, threshold: float) -> list[int | None]:
    """The drawn tokens where the entropy is below the threshold; None elsewhere."""
    drawn = zip(predictions.drawn, predictions.entropies, strict=True)
    return [token if entropy < threshold else None for token, entropy in drawn]


def _log_prob(member: Member) -> float:
    return (
        member.leaf.log_prob + member.token_log_prob
        if isinstance(member, Child)
        else member.log_prob
    )


def _drawn(token: int | None) -> int:
    if token is None:
        raise ValueError(
            "no token can be drawn from this distribution; its logits contain NaN or are all -inf"
        )
    return token
