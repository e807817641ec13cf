"""Two children at a fork: the most likely token, and one drawn from the others."""

import itertools
import math

from eab.engine.branching.policy import Seeded, children_of
from eab.engine.branching.random_streams import Purpose, pruning_uniform, uniform


class MyPolicy(Seeded):
    def branch(self, leaves, predictions, step):
        choices = []
        for index, leaf in enumerate(leaves):
            drawn, first = predictions.drawn[index], predictions.top_tokens[index][0]
            share = predictions.top_probabilities[index][0]
            if predictions.entropies[index] < self._threshold:
                choices.append([(drawn, 1.0)])
                continue
            number = uniform(self._config.seed, leaf.stream_key, step, Purpose.TOKEN, 1)
            [other] = predictions.draw([index], [number], [[first]])
            choices.append([(first, share), (other, 1 - share)])
        return children_of(leaves, predictions, choices, [pairs[0][0] for pairs in choices])

    def prune(self, population, step):
        weights = [member.weight for member in population]
        limit = self._config.max_paths
        if len(weights) <= limit:
            return weights
        start = pruning_uniform(self._config.seed, step)  # systematic resampling
        sums = [0.0, *itertools.accumulate(weights)]
        sums[-1] = 1.0
        marks = [math.floor(total * limit + start) for total in sums]
        kept = [after - before for before, after in itertools.pairwise(marks)]
        return [count / limit if count else None for count in kept]
