"""The policies that never fork a text: `greedy`, and `independent`, which is ordinary sampling."""

from collections.abc import Sequence
from dataclasses import replace

from eab.branching.policy import At, Child, Leaf, Member, Seeded, children_of, drawn_token
from eab.branching.random_streams import child_stream_key
from eab.branching.sampling import Predictions


class GreedyPolicy(Seeded):
    """The most likely token, never a fork."""

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        best = [tokens[0] for tokens in predictions.top_tokens]
        return children_of(leaves, predictions, [[(token, 1.0)] for token in best], best)

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep the only path."""
        return [member.weight for member in population]

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """All tokens, because no path forks."""
        return [tokens[0] for tokens in predictions.top_tokens]


class IndependentPolicy(Seeded):
    """Ordinary sampling: the first step forks into max_paths children, drawn independently, so two
    may be equal. Later steps never fork.
    """

    def branch(
        self, leaves: Sequence[Leaf], predictions: Predictions, step: int
    ) -> list[list[Child]]:
        if step == 0:
            return [self._first_tokens(leaves[0], predictions)]
        drawn = [drawn_token(token) for token in predictions.drawn]
        return children_of(leaves, predictions, [[(token, 1.0)] for token in drawn], drawn)

    def _first_tokens(self, root: Leaf, predictions: Predictions) -> list[Child]:
        """The first child keeps the random stream of the run, so its text is that of a run without
        forks.
        """
        count, root_key = self._config.max_paths, root.stream_key
        stream_keys = [root_key, *(child_stream_key(root_key, 0, i) for i in range(1, count))]
        uniforms = self.uniforms([(stream_key, 0) for stream_key in stream_keys])
        tokens = [drawn_token(token) for token in predictions.draw([0] * count, uniforms)]
        log_probs = predictions.log_prob([0] * count, tokens)
        return [
            Child(replace(root, stream_key=stream_key), token, log_prob, root.weight / count, True)
            for stream_key, token, log_prob in zip(stream_keys, tokens, log_probs, strict=True)
        ]

    def prune(self, population: Sequence[Member], step: int) -> list[float | None]:
        """Keep all: there are never more than max_paths."""
        return [member.weight for member in population]

    def forced_tokens(self, predictions: Predictions, at: At) -> list[int | None]:
        """Paths fork only at the first step."""
        pairs = zip(predictions.drawn, at, strict=True)
        return [heir if step else None for heir, (_, step) in pairs]
