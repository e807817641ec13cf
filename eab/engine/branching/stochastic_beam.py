"""The policy `stochastic-beam`: different texts, drawn without replacement.

It is stochastic beam search, the Gumbel-top-k trick on a tree (Kool et al., 2019, arXiv
1903.06059).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from msgspec.structs import replace

from eab.config import BranchingConfig
from eab.engine.branching.policy import (
    At,
    Child,
    Leaf,
    Member,
    Seeded,
    children_of,
    drawn_token,
    log_prob_of,
    stream_key_of,
)
from eab.engine.branching.random_streams import ROOT, Purpose, uniform
from eab.engine.branching.sampling import Predictions


@dataclass(slots=True)
class _Continuations:
    """The continuations of one leaf, highest perturbed log-probability first; more on demand."""

    leaf: Leaf
    tokens: list[int]
    perturbed: list[float]


class StochasticBeamPolicy(Seeded):
    """Stochastic beam search: the max_paths texts of highest perturbed log-probability.

    The log-probability of every text is perturbed by its own Gumbel noise, so the max_paths highest
    values are a sample without replacement (the Gumbel-top-k trick). A prefix has the highest value
    of all its texts. So the continuations of a prefix are drawn in decreasing order, only as many
    as are needed, under the condition that the highest has the value of the prefix. If texts arrive
    at rates equal to their probabilities, exp(-value) is the time at which a text arrives; the next
    continuation is the first of the remaining ones to arrive.

    Let kappa be the highest value that was dropped. A text of probability p is kept with
    probability q = 1 - exp(-p / exp(kappa)), given the others, so the sum of p / q x f(text) is an
    unbiased estimate of E f. The sum of these importance weights varies; if max_paths is 1, their
    variance is infinite. The weights here are divided by their sum, as the paper does for its
    estimates: they are consistent, with a bias of the order of 1 / max_paths. The threshold and the
    branch factor have no effect.
    """

    def __init__(self, config: BranchingConfig) -> None:
        super().__init__(config)
        # A standard Gumbel variable.
        root = -math.log(_exponential(uniform(config.seed, ROOT, 0, Purpose.PERTURBATION)))
        self._perturbed: dict[int, float] = {ROOT: root}  # of every path, by its stream key
        self.kappa = -math.inf  # the highest perturbed log-probability that was dropped so far

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """The continuations to keep; for a path without any, its best one."""
        beam = [
            _Continuations(leaf, [drawn_token(token)], [self._perturbed[leaf.stream_key]])
            for leaf, token in zip(leaves, predictions.drawn, strict=True)
        ]
        live = {leaf.stream_key for leaf in leaves}
        finished = [value for key, value in self._perturbed.items() if key not in live]
        values = self._extended(beam, finished, predictions, step)
        if len(values) > self._config.max_paths:
            self.kappa = max(self.kappa, values[self._config.max_paths])
        families = self._families(beam, predictions)
        for stream_key in live:
            del self._perturbed[stream_key]
        for family, options in zip(families, beam, strict=True):
            for child, value in zip(family, options.perturbed, strict=False):
                self._perturbed[stream_key_of(child, step)] = value
        return families

    def _extended(
        self,
        beam: Sequence[_Continuations],
        finished: Sequence[float],
        predictions: Predictions,
        step: int,
    ) -> list[float]:
        """Draw continuations until the max_paths + 1 highest values are known; returns these."""
        wanted = self._config.max_paths + 1
        growing = list(range(len(beam)))
        while True:
            drawn = (value for options in beam for value in options.perturbed)
            values = nlargest(wanted, [*finished, *drawn])
            lowest = max(self.kappa, values[-1] if len(values) == wanted else -math.inf)
            growing = [index for index in growing if beam[index].perturbed[-1] > lowest]
            growing = self._next(beam, growing, predictions, step)
            if not growing:
                return values

    def _next(
        self,
        beam: Sequence[_Continuations],
        growing: Sequence[int],
        predictions: Predictions,
        step: int,
    ) -> list[int]:
        """Draw one more continuation of each of these leaves; returns the indices that got one."""
        seed = self._config.seed
        uniforms = [
            uniform(seed, beam[at].leaf.stream_key, step, Purpose.TOKEN, len(beam[at].tokens))
            for at in growing
        ]
        draws = predictions.draw_inside(growing, uniforms, [beam[at].tokens for at in growing])
        grown = []
        for at, draw in zip(growing, draws, strict=True):
            if draw.token is None:
                continue
            options = beam[at]
            number = uniform(
                seed, options.leaf.stream_key, step, Purpose.PERTURBATION, len(options.tokens)
            )
            waited = math.log(_exponential(number))
            rate = options.leaf.log_prob + math.log(draw.total_probability)
            options.tokens.append(draw.token)
            options.perturbed.append(-_log_sum(-options.perturbed[-1], waited - rate))
            grown.append(at)
        return grown

    def _families(
        self, beam: Sequence[_Continuations], predictions: Predictions
    ) -> list[list[Child]]:
        choices, heirs = [], []
        for options in beam:
            kept = max(1, sum(value > self.kappa for value in options.perturbed))
            choices.append([(token, 1.0) for token in options.tokens[:kept]])
            heirs.append(options.tokens[0])
        families = children_of([one.leaf for one in beam], predictions, choices, heirs)
        return [
            [replace(child, weight=child.weight * math.exp(child.token_log_prob)) for child in own]
            for own in families
        ]

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep members above kappa, weighted by their share of all importance weights."""
        keys = [
            member.stream_key if isinstance(member, Leaf) else stream_key_of(member, step)
            for member in population
        ]
        kept = {
            key: importance(log_prob_of(member), self.kappa)
            for key, member in zip(keys, population, strict=True)
            if self._perturbed[key] > self.kappa
        }
        self._perturbed = {key: self._perturbed[key] for key in kept}
        return _shares(keys, kept)

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """None: any path may fork or be dropped."""
        return [None] * len(at)


def importance(log_prob: float, kappa: float) -> float:
    """ln of the importance weight p / q of a text, with q = 1 - exp(-p / exp(kappa)); kappa is -inf
    if nothing was dropped.
    """
    rate = math.exp(min(log_prob - kappa, 700.0))  # q is 1 far below the limit of exp
    if rate < 1e-300:
        return kappa  # q is p / exp(kappa), up to rounding
    return log_prob - math.log(-math.expm1(-rate))


def _shares(keys: Sequence[int], logs: Mapping[int, float]) -> list[float | None]:
    """The share of each key, from the logarithms of weights; None for keys without one."""
    highest = max(logs.values())
    total = math.fsum(math.exp(value - highest) for value in logs.values())
    return [math.exp(logs[key] - highest) / total if key in logs else None for key in keys]


def _exponential(number: float) -> float:
    """A standard exponential draw, never 0, from a random number in [0, 1)."""
    return -math.log1p(-number) or 2.0**-54


def _log_sum(a: float, b: float) -> float:
    """ln(exp(a) + exp(b))."""
    high, low = max(a, b), min(a, b)
    return high + math.log1p(math.exp(low - high))
