"""The policy `beam`: beam search, as transformers defines it (`generate(num_beams=max_paths)`)."""

import math
from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import TypeAlias

from eab.config import BranchingConfig
from eab.engine.branching.policy import Child, Leaf, Member, Seeded, log_prob_of, stream_key_of
from eab.engine.branching.sampling import Predictions
from eab.run.tree import beam_score

Ends: TypeAlias = Callable[[Leaf, int], bool]  # whether the text of a path ends with this token


class BeamPolicy(Seeded):
    """Beam search: at each step, the max_paths most probable continuations of all live paths live
    on. A continuation that ends its text is a finished text if it is among the first max_paths; it
    takes no place among the live paths. The max_paths finished texts of highest score are kept.

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
