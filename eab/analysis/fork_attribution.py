"""How much each fork of a tree contributes to the semantic entropy.

By the chain rule, the entropy over the answers that were seen is a sum over the forks: the share of
the weight that reaches a fork, times the mutual information between the branch taken and the
answer. The branch factor caps this information at ln k, but the entropy over all tokens at the fork
is known. So the contribution of a fork is that entropy, as far as its branches decide the answer.
Where all tokens became branches, the two are equal.

The information at a fork is the Jensen-Shannon divergence between the answers of its branches. With
few texts below each branch it is biased upwards, so early forks are given too much.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TypeAlias

from eab.analysis.answers import Answers, entropy
from eab.run import Path, RunState

_Weights: TypeAlias = defaultdict[int, float]  # by answer number


@dataclass(frozen=True, slots=True)
class ForkShare:
    """The contribution of one fork to the semantic entropy."""

    path: int  # id of the path that forks
    weight: float  # share (0 to 1) of the weight of all decided texts that is below this fork
    token_entropy: float  # entropy (nats) of all tokens at the fork
    branch_entropy: float  # entropy (nats) of the weights of its branches
    information: float  # mutual information (nats) of branch and answer, given the fork is reached

    @property
    def contribution(self) -> float:
        """This fork's part of the semantic entropy, in nats."""
        return self.weight * self.decisiveness * self.token_entropy

    @property
    def decisiveness(self) -> float:
        """From 0 (the branches differ only in wording) to 1 (the branch decides the answer)."""
        return min(1.0, self.information / self.branch_entropy) if self.branch_entropy else 0.0


def attribute_to_forks(run: RunState, answers: Answers) -> tuple[ForkShare, ...]:
    """The contribution of every fork with two or more branches that lead to answers, largest first.

    The contributions add up to the semantic entropy. The artificial fork where independent texts
    start is not counted.
    """
    below: dict[int, _Weights] = defaultdict(lambda: defaultdict(float))
    for number, answer in enumerate(answers.ranked):
        for leaf in answer.leaves:
            for path in run.lineage(leaf):
                below[path][number] += run.paths[leaf].weight
    total = math.fsum(below[0].values()) if 0 in below else 0.0
    shares = [
        _share(path, below[path.id], branches, total)
        for path in run.paths
        if len(branches := [below[child] for child in path.children if _weight(below, child)]) > 1
    ]
    return tuple(sorted(shares, key=lambda fork: -fork.contribution))


def _weight(below: dict[int, _Weights], path: int) -> float:
    return math.fsum(below[path].values()) if path in below else 0.0


def _share(path: Path, here: _Weights, branches: list[_Weights], total: float) -> ForkShare:
    weights = [math.fsum(branch.values()) for branch in branches]
    weight = math.fsum(weights)
    within = math.fsum(
        share / weight * entropy(list(branch.values()))
        for share, branch in zip(weights, branches, strict=True)
    )
    information = max(0.0, entropy(list(here.values())) - within)
    known = path.fork_entropy or 0.0
    return ForkShare(path.id, weight / total, known, entropy(weights), information)
