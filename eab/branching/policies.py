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
from typing import Protocol

from eab.branching.pruning import fearnhead_clifford
from eab.branching.random_streams import child_stream_key, pruning_uniform, uniform
from eab.branching.sampling import Predictions
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


class Policy(Protocol):
    """Branching decisions of one run."""

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """The children of each live leaf; two or more are a fork.

        Args:
            leaves: The live leaves; leaf i has batch index i in the predictions.
            predictions: Of this step.
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

    def forced_tokens(
        self, predictions: Predictions, draws: Sequence[tuple[int, int]]
    ) -> list[int | None]:
        """The tokens that are certain to follow, whatever happens to other paths.

        Speculative decoding compares draft tokens with them.

        Args:
            predictions: Of any paths and steps.
            draws: For each batch index, the path's stream key and the step.

        Returns:
            For each batch index, the token that the path must take; None where it may fork.
        """
        ...


class FairPolicy:
    """Unbiased branching.

    At a fork, a path of weight W gets the k-1 most likely tokens as children, with weight W x p
    each, and one token drawn from the rest, with weight W x (1 - their probabilities).
    """

    def __init__(self, config: BranchingConfig, threshold_nats: float) -> None:
        self._config, self._threshold = config, threshold_nats

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        seed = self._config.seed
        heirs = _draw_heirs(predictions, [(leaf.stream_key, step) for leaf in leaves], seed)
        forks = [
            index
            for index, leaf in enumerate(leaves)
            if self._may_fork(leaf, predictions.entropies[index])
        ]
        heads = [self._head(predictions, index) for index in forks]
        rest_uniforms = [uniform(seed, leaves[index].stream_key, step, 1) for index in forks]
        rests = predictions.draw(forks, rest_uniforms, excluded=heads)
        choices: list[list[tuple[int, float]]] = [[(_drawn(heir), 1.0)] for heir in heirs]
        for index, head, rest in zip(forks, heads, rests, strict=True):
            choices[index] = self._shares(predictions, index, head, rest, _drawn(heirs[index]))
        return _children(leaves, predictions, choices, heirs)

    def _may_fork(self, leaf: Leaf, entropy: float) -> bool:
        """Any rule that does not depend on the draw keeps the weights unbiased."""
        return entropy >= self._threshold and leaf.weight >= self._config.min_fork_weight

    def _head(self, predictions: Predictions, index: int) -> list[int]:
        """The k-1 most likely tokens, without those of probability zero."""
        ranked = zip(
            predictions.top_tokens[index], predictions.top_probabilities[index], strict=True
        )
        possible = [token for token, probability in ranked if probability > 0]
        return possible[: self._config.branch_factor - 1]

    def _shares(
        self, predictions: Predictions, index: int, head: list[int], rest: int | None, heir: int
    ) -> list[tuple[int, float]]:
        """Tokens with their shares of the parent's weight; the shares sum to 1.

        If the heir is not in the head, it is the token drawn from the rest.
        """
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

    def forced_tokens(
        self, predictions: Predictions, draws: Sequence[tuple[int, int]]
    ) -> list[int | None]:
        """See Policy.forced_tokens.

        The minimum weight to fork is not considered, because the weight of a path may still
        increase.
        """
        return _heirs_below_threshold(predictions, draws, self._config.seed, self._threshold)


class OriginalPolicy:
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
        self._config, self._threshold = config, threshold_nats

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        drawn: list[list[int]] = [[] for _ in leaves]
        drawing = list(range(len(leaves)))  # batch indices that get another child
        for number in range(self._factor(len(leaves))):
            uniforms = [
                uniform(self._config.seed, leaves[index].stream_key, step, number)
                for index in drawing
            ]
            tokens = predictions.draw(
                drawing, uniforms, excluded=[drawn[index] for index in drawing]
            )
            for index, token in zip(drawing, tokens, strict=True):
                drawn[index] += [] if token is None else [token]
            drawing = [
                index for index in drawing if predictions.entropies[index] >= self._threshold
            ]
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

    def forced_tokens(
        self, predictions: Predictions, draws: Sequence[tuple[int, int]]
    ) -> list[int | None]:
        """See Policy.forced_tokens."""
        return _heirs_below_threshold(predictions, draws, self._config.seed, self._threshold)


class GreedyPolicy:
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

    def forced_tokens(
        self, predictions: Predictions, draws: Sequence[tuple[int, int]]
    ) -> list[int | None]:
        """See Policy.forced_tokens: no path forks."""
        return [tokens[0] for tokens in predictions.top_tokens]


class IndependentPolicy:
    """Ordinary sampling: the first step forks into max_paths children, drawn independently, so two
    may be equal. Later steps never fork.
    """

    def __init__(self, config: BranchingConfig) -> None:
        self._config = config

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        if step == 0:
            return [self._first_tokens(leaves[0], predictions)]
        draws = [(leaf.stream_key, step) for leaf in leaves]
        drawn = [_drawn(token) for token in _draw_heirs(predictions, draws, self._config.seed)]
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

    def forced_tokens(
        self, predictions: Predictions, draws: Sequence[tuple[int, int]]
    ) -> list[int | None]:
        """See Policy.forced_tokens: paths fork at the first step only."""
        heirs = _draw_heirs(predictions, draws, self._config.seed)
        return [heir if step else None for heir, (_, step) in zip(heirs, draws, strict=True)]


def make_policy(config: BranchingConfig, threshold_nats: float) -> Policy:
    """The policy that the config names."""
    if config.policy == "greedy":
        return GreedyPolicy()
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


def _draw_heirs(
    predictions: Predictions, draws: Sequence[tuple[int, int]], seed: int
) -> list[int | None]:
    """The token at each batch index that comes if the path does not fork.

    Args:
        predictions: Of any paths and steps.
        draws: For each batch index, the path's stream key and the step.
        seed: Of the run.
    """
    return predictions.draw(
        range(len(draws)), [uniform(seed, stream_key, step, 0) for stream_key, step in draws]
    )


def _heirs_below_threshold(
    predictions: Predictions, draws: Sequence[tuple[int, int]], seed: int, threshold: float
) -> list[int | None]:
    """The heirs where the entropy is below the threshold; None elsewhere."""
    heirs = zip(_draw_heirs(predictions, draws, seed), predictions.entropies, strict=True)
    return [heir if entropy < threshold else None for heir, entropy in heirs]


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
