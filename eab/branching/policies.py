"""Where a path forks, which children it gets, what they weigh, and who stays when the path limit
acts.

`fair` keeps sum of weight x f(leaf) an unbiased estimate of E f under the processed distribution: a
child weighs, in expectation, its parent's weight times its probability, and pruning keeps every
weight in expectation. `original` is the published rule of entropy-adaptive branching, kept to
reproduce it: see OriginalPolicy. `greedy` takes the most likely token and never forks; it probes a
prompt for the quantile threshold.
`independent` is ordinary sampling, to compare with: max_paths texts from the prompt on, none
knowing of the others.
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
    """A live or finished path. lineage: key of its random stream (eab.branching.random_streams).
    token: its last one, -1 if none.
    """

    path: int
    stream_key: int
    weight: float
    log_prob: float
    token: int = -1
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Child:
    """One continuation of a leaf by one token. heir: it is what would have come without a fork."""

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
        """Children of each live leaf (line i of the predictions belongs to leaf i); two or more are
        a fork.
        """
        ...

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """New weight of each member, None to drop it. Members: finished leaves and children, in
        tree order.
        """
        ...

    def forced_tokens(
        self, predictions: Predictions, draws: Sequence[tuple[int, int]]
    ) -> list[int | None]:
        """Per line the token that a path must take there, whatever becomes of the others; None
        where it may fork.

        draws: per line the path's lineage and the step. Speculation compares its drafts with these
        tokens.
        """
        ...


class FairPolicy:
    """Cells: the k-1 most likely tokens at W x p, and one token drawn from the rest at W x (1 -
    their mass).
    """

    def __init__(self, config: BranchingConfig, threshold_nats: float) -> None:
        self._config, self._threshold = config, threshold_nats

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        seed, everyone = self._config.seed, range(len(leaves))
        heirs = _heirs(predictions, [(leaf.stream_key, step) for leaf in leaves], seed)
        forks = [
            line for line in everyone if self._may_fork(leaves[line], predictions.entropies[line])
        ]
        heads = [self._head(predictions, line) for line in forks]
        rest_uniforms = [uniform(seed, leaves[line].stream_key, step, 1) for line in forks]
        rests = predictions.draw(forks, rest_uniforms, without=heads)
        choices: list[list[tuple[int, float]]] = [[(_some(heir), 1.0)] for heir in heirs]
        for line, head, rest in zip(forks, heads, rests, strict=True):
            choices[line] = self._cells(predictions, line, head, rest, _some(heirs[line]))
        return _children(leaves, predictions, choices, heirs)

    def _may_fork(self, leaf: Leaf, entropy: float) -> bool:
        """Any rule that does not look at the draw keeps the weights unbiased."""
        return entropy >= self._threshold and leaf.weight >= self._config.min_fork_weight

    def _head(self, predictions: Predictions, line: int) -> list[int]:
        ranked = zip(predictions.top_tokens[line], predictions.top_probabilities[line], strict=True)
        return [token for token, probability in ranked if probability > 0][
            : self._config.branch_factor - 1
        ]

    def _cells(
        self, predictions: Predictions, line: int, head: list[int], rest: int | None, heir: int
    ) -> list[tuple[int, float]]:
        """Tokens with their share of the parent's weight; the shares sum to 1."""
        masses = predictions.top_probabilities[line][: len(head)]
        cells = list(zip(head, masses, strict=True))
        rest_mass = 1.0 - math.fsum(masses)
        if rest is not None and rest_mass > 0:
            cells.append((rest if heir in head else heir, rest_mass))
        total = math.fsum(mass for _, mass in cells)
        return [(token, mass / total) for token, mass in cells]

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """See Policy.prune: live and finished paths together are at most max_paths."""
        weights = [member.weight for member in population]
        return fearnhead_clifford(
            weights, self._config.max_paths, pruning_uniform(self._config.seed, step)
        )

    def forced_tokens(
        self, predictions: Predictions, draws: Sequence[tuple[int, int]]
    ) -> list[int | None]:
        """See Policy.foresee: the weight of a path may yet rise, so any hesitation counts."""
        return _heirs_of_the_sure(predictions, draws, self._config.seed, self._threshold)


class OriginalPolicy:
    """The published rule, with its behaviour at the budget; leaves count equally (weight 1 /
    leaves).

    With b = max_paths minus the live paths at the start of the step, a path at or above the
    threshold gets k children if b >= k, b if 0 < b < k, and 2 if b <= 0. So it "forks" into a
    single child when b = 1 (the tree stops growing one path short of its limit), and at the limit
    it doubles paths and keeps the most likely: beam search. Children are drawn without replacement.
    Finished paths leave the budget and are never pruned.
    Not reproduced: drawing tokens of probability zero when fewer tokens than children are possible.
    """

    def __init__(self, config: BranchingConfig, threshold_nats: float) -> None:
        self._config, self._threshold = config, threshold_nats

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        everyone, factor = range(len(leaves)), self._factor(len(leaves))
        drawn: list[list[int]] = [[] for _ in everyone]
        open_lines = list(everyone)
        for index in range(factor):
            uniforms = [
                uniform(self._config.seed, leaves[line].stream_key, step, index)
                for line in open_lines
            ]
            tokens = predictions.draw(
                open_lines, uniforms, without=[drawn[line] for line in open_lines]
            )
            for line, token in zip(open_lines, tokens, strict=True):
                drawn[line] += [] if token is None else [token]
            open_lines = [
                line for line in open_lines if predictions.entropies[line] >= self._threshold
            ]
        heirs = [tokens[0] for tokens in drawn]
        return _children(
            leaves, predictions, [[(token, 1.0) for token in tokens] for tokens in drawn], heirs
        )

    def _factor(self, live: int) -> int:
        budget = self._config.max_paths - live
        return min(budget, self._config.branch_factor) if budget > 0 else 2

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """See Policy.prune: the max_paths most likely live paths stay; the finished ones always
        do.
        """
        live = [index for index, member in enumerate(population) if isinstance(member, Child)]
        by_log_prob = sorted(live, key=lambda index: -_log_prob(population[index]))
        dropped = set(by_log_prob[self._config.max_paths :])
        weight = 1.0 / (len(population) - len(dropped))
        return [None if index in dropped else weight for index in range(len(population))]

    def forced_tokens(
        self, predictions: Predictions, draws: Sequence[tuple[int, int]]
    ) -> list[int | None]:
        """See Policy.foresee."""
        return _heirs_of_the_sure(predictions, draws, self._config.seed, self._threshold)


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
        """See Policy.foresee: it never forks."""
        return [tokens[0] for tokens in predictions.top_tokens]


class IndependentPolicy:
    """The first step forks into max_paths children, each drawn for itself, so two may be equal;
    later ones never do.
    """

    def __init__(self, config: BranchingConfig) -> None:
        self._config = config

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """See Policy.branch."""
        if step == 0:
            return [self._starts(leaves[0], predictions)]
        heirs = _heirs(predictions, [(leaf.stream_key, step) for leaf in leaves], self._config.seed)
        drawn = [_some(token) for token in heirs]
        return _children(leaves, predictions, [[(token, 1.0)] for token in drawn], drawn)

    def _starts(self, root: Leaf, predictions: Predictions) -> list[Child]:
        """The first text keeps the random stream of the run, so it is the one that a run without
        forks gives.
        """
        count, seed = self._config.max_paths, self._config.seed
        stream_keys = [
            root.stream_key,
            *(child_stream_key(root.stream_key, 0, index) for index in range(1, count)),
        ]
        tokens = [
            _some(*predictions.draw([0], [uniform(seed, stream_key, 0, 0)]))
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
        """See Policy.foresee: it forks at the first step alone."""
        heirs = _heirs(predictions, draws, self._config.seed)
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
    """The leaf that a child becomes; only the heir keeps its parent's random stream."""
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
    """One child per (token, share of the parent's weight)."""
    lines = [line for line, chosen in enumerate(choices) for _ in chosen]
    log_probs = iter(
        predictions.log_prob(lines, [token for chosen in choices for token, _ in chosen])
    )
    return [
        [
            Child(leaf, token, next(log_probs), leaf.weight * share, token == heir)
            for token, share in chosen
        ]
        for leaf, chosen, heir in zip(leaves, choices, heirs, strict=True)
    ]


def _heirs(
    predictions: Predictions, draws: Sequence[tuple[int, int]], seed: int
) -> list[int | None]:
    """Per line the token that comes if the path does not fork. draws: lineage and step."""
    return predictions.draw(
        range(len(draws)), [uniform(seed, stream_key, step, 0) for stream_key, step in draws]
    )


def _heirs_of_the_sure(
    predictions: Predictions, draws: Sequence[tuple[int, int]], seed: int, threshold: float
) -> list[int | None]:
    heirs = zip(_heirs(predictions, draws, seed), predictions.entropies, strict=True)
    return [heir if entropy < threshold else None for heir, entropy in heirs]


def _log_prob(member: Member) -> float:
    return (
        member.leaf.log_prob + member.token_log_prob
        if isinstance(member, Child)
        else member.log_prob
    )


def _some(token: int | None) -> int:
    if token is None:
        raise ValueError("the distribution has no token left; the logits hold NaN or are all -inf")
    return token
