"""The policies that keep the best paths so far: `beam`, `best-first` and `stochastic-beam`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TypeAlias

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
from eab.run.tree import beam_score

Ends: TypeAlias = Callable[[Leaf, int], bool]  # whether the text of a path ends with this token


class BeamPolicy(Seeded):
    """Beam search, as transformers defines it (`generate(num_beams=max_paths)`): at each step, the
    max_paths most probable continuations of all live paths live on. A continuation that ends its
    text is a finished text if it is among the first max_paths; it takes no place among the live
    paths. The max_paths finished texts of highest score are kept.

    The run ends when there are max_paths of them and, unless `early_stopping` is on, the most
    probable live path has no better score than the worst of them: at its current length, or at
    max_new_tokens with "never" and a positive length penalty. The live paths are then dropped. With
    one beam, transformers decodes greedily, and so does this.

    The weight of a path is its probability, so the weights sum to the probability of the texts
    kept. Nothing is drawn. The threshold, the branch factor and the seed have no effect.

    Attributes:
        ends: Whether a text ends; the engine knows, by stop tokens, stop strings and length.
    """

    ends: Ends

    def __init__(self, config: BranchingConfig) -> None:
        super().__init__(config)
        self._scores: dict[int, float] = {}  # of the finished texts, by stream key

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """The continuations that may be kept; for a path without any, its best one."""
        return best_children(leaves, predictions, self._best(leaves, predictions, step))

    def _best(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[tuple[int, int]]:
        """The most probable continuations, as (batch index, token): max_paths or, before the last
        step, more until max_paths of them do not end their text.
        """
        beams = self._config.max_paths
        if step + 1 >= self._config.max_new_tokens:
            return predictions.best_continuations([leaf.log_prob for leaf in leaves], beams)
        count = 2 * beams  # enough if one token ends texts
        while True:
            found = predictions.best_continuations([leaf.log_prob for leaf in leaves], count)
            living = 0
            for place, (index, token) in enumerate(found, start=1):
                living += not self.ends(leaves[index], token)
                if living == beams:
                    return found[:place]
            if len(found) < count:
                return found
            count *= 2

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep the live paths and the finished texts, or only the latter if the search ends."""
        beams, penalty = self._config.max_paths, self._config.length_penalty
        children = [(at, one) for at, one in enumerate(population) if isinstance(one, Child)]
        children.sort(key=lambda child: -log_prob_of(child[1]))
        ended = {at for at, child in children if self.ends(child.leaf, child.token)}
        scores = {
            at: self._scores[one.stream_key]
            for at, one in enumerate(population)
            if isinstance(one, Leaf)
        }
        for at, child in children[:beams]:
            if at in ended:
                scores[at] = beam_score(log_prob_of(child), step + 1, penalty)
        best = nlargest(beams, scores, key=scores.__getitem__)
        live = [(at, log_prob_of(child)) for at, child in children if at not in ended][:beams]
        if live and self._is_over(live[0][1], [scores[at] for at in best], step):
            live = []
        self._scores = {_key(population[at], step): scores[at] for at in best}
        kept = {*best, *(at for at, _ in live)}
        return [one.weight if at in kept else None for at, one in enumerate(population)]

    def _is_over(self, log_prob: float, scores: Sequence[float], step: int) -> bool:
        """Whether these finished texts are final.

        Args:
            log_prob: Of the most probable live path.
            scores: Of the finished texts, best first.
        """
        beams, early = self._config.max_paths, self._config.early_stopping
        penalty = self._config.length_penalty
        if len(scores) < beams or early == "on" or beams == 1:
            return len(scores) == beams
        longest = early == "never" and penalty > 0
        length = self._config.max_new_tokens if longest else step + 1
        return beam_score(log_prob, length, penalty) <= scores[-1]


def best_children(
    leaves: Sequence[Leaf], predictions: Predictions, best: Sequence[tuple[int, int]]
) -> list[list[Child]]:
    """These continuations, (batch index, token), as children that weigh their probability; a leaf
    without any has its best one.
    """
    tokens: list[list[int]] = [[] for _ in leaves]
    for index, token in best:
        tokens[index].append(token)
    for index, found in enumerate(tokens):
        found += [] if found else predictions.top_tokens[index][:1]
    indices = [index for index, found in enumerate(tokens) for _ in found]
    log_probs = iter(predictions.log_prob(indices, [token for row in tokens for token in row]))
    return [
        [_child(leaf, token, next(log_probs), number) for number, token in enumerate(found)]
        for leaf, found in zip(leaves, tokens, strict=True)
    ]


def _child(leaf: Leaf, token: int, log_prob: float, number: int) -> Child:
    return Child(leaf, token, log_prob, math.exp(leaf.log_prob + log_prob), number == 0)


def _key(member: Member, step: int) -> int:
    return member.stream_key if isinstance(member, Leaf) else stream_key_of(member, step)


class BestFirstPolicy(Seeded):
    """Best-first search (uniform-cost search; as beam search: Meister et al., 2020, TACL 8): each
    pass continues the `paths_per_pass` most probable live paths, long or short; the others wait.
    The max_paths most probable paths are kept, live and finished together.

    While the path limit has dropped nothing, the beginnings computed so far are the most probable
    ones, up to the paths of one pass. A dropped path is no more probable than each that is kept.

    The weight of a path is its probability. That of dropped texts is not passed on, so the weights
    sum to what is kept; the rest is unexplored. Nothing is drawn. The threshold, the branch factor
    and the seed have no effect.
    """

    def select(self, live: Sequence[Leaf]) -> Sequence[Leaf]:
        """The most probable ones; of equally probable ones, the first."""
        log_probs = [leaf.log_prob for leaf in live]
        best = nlargest(self._config.paths_per_pass, range(len(live)), log_probs.__getitem__)
        return [live[at] for at in sorted(best)]

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        """The continuations that may be kept; for a path without any, its best one."""
        log_probs = [leaf.log_prob for leaf in leaves]
        best = predictions.best_continuations(log_probs, self._config.max_paths)
        return best_children(leaves, predictions, best)

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep the most probable ones."""
        log_probs = [log_prob_of(member) for member in population]
        kept = {*nlargest(self._config.max_paths, range(len(population)), log_probs.__getitem__)}
        return [one.weight if at in kept else None for at, one in enumerate(population)]


@dataclass(slots=True)
class _Continuations:
    """The continuations of one leaf, highest perturbed log-probability first; more on demand."""

    leaf: Leaf
    tokens: list[int]
    perturbed: list[float]


class StochasticBeamPolicy(Seeded):
    """Stochastic beam search (Kool et al., 2019, arXiv 1903.06059): different texts, drawn without
    replacement, the max_paths ones of highest perturbed log-probability.

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
