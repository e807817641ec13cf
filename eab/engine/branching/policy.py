"""What a branching policy decides about leaves, their children and weights.

`eab.engine.branching.policies` names the policies. Imports no torch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from eab.config import BranchingConfig
from eab.engine.branching.random_streams import Purpose, child_stream_key, uniform

if TYPE_CHECKING:
    from eab.engine.branching.sampling import Predictions, RestDraw


class Leaf(Struct, frozen=True, gc=False):
    """A live or finished path."""

    path: int
    stream_key: int  # key of its random stream (see eab.engine.branching.random_streams)
    weight: float
    log_prob: float  # ln of the probability of its tokens
    token: int = -1  # its last token; -1 if it has none
    finished: bool = False
    tokens: int = 0  # how many new tokens it has, which is the step of its next one


class Child(Struct, frozen=True, gc=False):
    """One continuation of a leaf by one token."""

    leaf: Leaf
    token: int
    token_log_prob: float  # ln of the token's probability
    weight: float
    heir: bool  # whether it is the child that would have come without a fork


# Of the population, in tree order: a continuation, or a leaf that is finished or waits
Member = Leaf | Child


At: TypeAlias = Sequence[tuple[int, int]]  # the stream key of a path, and a step


class Policy(Protocol):
    """Branching decisions of one run."""

    def select(self, live: Sequence[Leaf]) -> Sequence[Leaf]:
        """The live leaves that get their next token now, in tree order; the others wait."""
        ...

    def uniforms(self, at: At) -> list[float]:
        """For each path and step, the random number in [0, 1) that draws the next token."""
        ...

    def rest_draws(self, predictions: "Predictions", first: int, at: At) -> "list[RestDraw]":
        """Further tokens to draw for `branch`. The rows of this run, one for each path and step of
        `at`, start at batch index `first`.
        """
        ...

    def branch(
        self, leaves: Sequence[Leaf], predictions: "Predictions", step: int
    ) -> list[list[Child]]:
        """The children of each leaf; two or more are a fork.

        Args:
            leaves: The selected leaves; leaf i has batch index i in the predictions.
        """
        ...

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """The new weight of each leaf that was not selected and each child, in tree order; None
        drops it.
        """
        ...

    def forced_tokens(self, predictions: "Predictions", at: At) -> list[int | None]:
        """For each batch index, the token that the path must take, whatever happens to other paths;
        None where it may fork. Speculative decoding compares draft tokens with them.
        """
        ...


class Seeded:
    """The base of the policies. A path draws its next token with the first random number of its
    stream at the step. Every path may fork, so no draft token can be verified.
    """

    def __init__(self, config: BranchingConfig, threshold_nats: float = 0.0) -> None:
        self._config, self._threshold = config, threshold_nats

    def select(self, live: Sequence[Leaf]) -> Sequence[Leaf]:
        """All: the paths of a step have equally many tokens."""
        return live

    def uniforms(self, at: At) -> list[float]:
        return [
            uniform(self._config.seed, stream_key, step, Purpose.TOKEN) for stream_key, step in at
        ]

    def rest_draws(self, predictions: "Predictions", first: int, at: At) -> "list[RestDraw]":
        return []

    def forced_tokens(self, predictions: "Predictions", at: At) -> list[int | None]:
        return [None] * len(at)


class Thresholded(Seeded):
    """A policy that forks at or above an entropy threshold, in nats."""

    def forced_tokens(self, predictions: "Predictions", at: At) -> list[int | None]:
        """The tokens drawn below the threshold. The minimum weight to fork is ignored, because the
        weight of a path may still increase.
        """
        drawn = zip(predictions.drawn, predictions.entropies, strict=True)
        return [token if entropy < self._threshold else None for token, entropy in drawn]


def grown(child: Child, path: int, weight: float, step: int) -> Leaf:
    """The leaf that a child becomes; only the heir keeps the random stream of its parent."""
    key, tokens = stream_key_of(child, step), child.leaf.tokens + 1
    return Leaf(path, key, weight, log_prob_of(child), child.token, tokens=tokens)


def stream_key_of(child: Child, step: int) -> int:
    """The key of the random stream of the path that a child of this step becomes."""
    parent = child.leaf.stream_key
    return parent if child.heir else child_stream_key(parent, step, child.token)


def children_of(
    leaves: Sequence[Leaf],
    predictions: "Predictions",
    choices: Sequence[Sequence[tuple[int, float]]],
    heirs: Sequence[int | None],
) -> list[list[Child]]:
    """Children from (token, share of the parent's weight) pairs of each leaf."""
    indices = [index for index, chosen in enumerate(choices) for _ in chosen]
    tokens = [token for chosen in choices for token, _ in chosen]
    log_probs = iter(predictions.log_prob(indices, tokens))
    return [
        [
            Child(leaf, token, next(log_probs), leaf.weight * share, token == heir)
            for token, share in chosen
        ]
        for leaf, chosen, heir in zip(leaves, choices, heirs, strict=True)
    ]


def log_prob_of(member: Member) -> float:
    if isinstance(member, Leaf):
        return member.log_prob
    return member.leaf.log_prob + member.token_log_prob


def drawn_token(token: int | None) -> int:
    if token is None:
        raise ValueError(
            "no token can be drawn, because the logits contain NaN or are all -inf; try dtype "
            "float32"
        )
    return token
