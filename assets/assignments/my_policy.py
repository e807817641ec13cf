"""A branching policy: where a text forks, which children it gets, and what they weigh.

Check it with: eab check policy my_policy.py
Use it with: EntropyAdaptiveBranching("embedded").run("Once upon a time", policy=MyPolicy)
"""

from eab.engine.branching.policy import Seeded, children_of


class MyPolicy(Seeded):
    """This beginning never forks. Yours forks where the entropy is at least self._threshold."""

    def branch(self, leaves, predictions, step):
        """The children of each leaf. For leaf number i, the predictions have
        - entropies[i], in nats,
        - top_tokens[i] and top_probabilities[i], the most likely tokens first,
        - drawn[i], a token that was drawn at random from the distribution,
        - draw([i], [number], [[3, 7]])[0], a token drawn with a random number in [0, 1) from all
          tokens but 3 and 7.

        uniform(self._config.seed, leaf.stream_key, step, Purpose.TOKEN, 1) is such a number (from
        eab.engine.branching.random_streams); 2, 3, ... instead of 1 give others.
        """
        choices = []  # for each leaf, a list of (token, share of the leaf's weight)
        for i, _ in enumerate(leaves):
            choices.append([(predictions.drawn[i], 1.0)])
        # For each leaf, the child that keeps its random numbers; the others get new ones.
        heirs = [pairs[0][0] for pairs in choices]
        return children_of(leaves, predictions, choices, heirs)

    def prune(self, population, step):
        """The new weight of each path, or None to drop it. At most self._config.max_paths may stay.
        pruning_uniform(self._config.seed, step) is a random number for it.
        """
        return [member.weight for member in population]
