"""The policy `best-first`: the most probable beginnings of texts first, whatever their length."""

from collections.abc import Sequence
from heapq import nlargest

from eab.engine.branching.beam import best_children
from eab.engine.branching.policy import Child, Leaf, Member, Seeded, log_prob_of
from eab.engine.branching.sampling import Predictions


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
